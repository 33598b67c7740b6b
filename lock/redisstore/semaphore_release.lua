-- Gives permits back to a semaphore, once for an owner: those that it has taken, or
-- those that it is known to owe.
--
-- KEYS  1 the count
--       2 what was done for this owner
--       3 the channel
--       4 and on: what was done for others, to be forgotten
-- ARGV  1 how many
--       2 for how many ms to remember what was done
--       3 '1' if they are owed
--       4 the command to publish with
--       5 the largest count
-- returns  1 given back, -1 there was nothing to give back, the key is not a count, or
--          the count would be too large
for i = 4, #KEYS do redis.call('del', KEYS[i]) end
local did = redis.call('get', KEYS[2])
if did == 'given' then return 1 end

-- remember records what was done. A server that is out of memory refuses set, and
-- incrby, unless the script has written before.
local function remember(what)
  redis.call('del', KEYS[2])
  redis.call('set', KEYS[2], what, 'px', ARGV[2])
end

local count = countOf(KEYS[1])
local owed = ARGV[3] == '1'
if count == false or not owed and (did ~= 'taken' or not count) then
  -- A request that comes late takes nothing.
  if not owed then remember('refused') end
  return -1
end
if (count or 0) + tonumber(ARGV[1]) > tonumber(ARGV[5]) then return -1 end
remember('given')
announcePermits(ARGV[4], KEYS[3], redis.call('incrby', KEYS[1], ARGV[1]))
return 1
