-- Gives permits back to a semaphore, once for an owner: those that it has taken, or those
-- that it is known to owe.
--
-- KEYS  1 the count
--       2 the record of this owner's request
--       3 the channel
-- ARGV  1 how many
--       2 for how many ms to keep the record
--       3 '1' if they are owed
--       4 the command to publish with
--       5 the largest count
-- returns  1 given back, -1 no permits to give back, the key is not a count, or the count
--          would be too large

-- include: deadline.lua
-- include: counter.lua

local did = redis.call('get', KEYS[2])
if did == 'given' then return 1 end

-- remember writes the record. A server out of memory refuses set, and incrby, unless the
-- script has written before. A user without the right to set keeps the record.
local function remember(what)
  redis.call('pexpire', KEYS[2], ARGV[2])
  redis.call('set', KEYS[2], what, 'px', ARGV[2])
end

local count = countOf(KEYS[1])
local owed = ARGV[3] == '1'
if count == false or not owed and (did ~= 'taken' or not count) then
  -- The record makes a late acquire request take nothing.
  if not owed then remember('refused') end
  return -1
end
if (count or 0) + tonumber(ARGV[1]) > tonumber(ARGV[5]) then return -1 end
remember('given')
local available = redis.pcall('incrby', KEYS[1], ARGV[1])
if type(available) == 'table' then -- the user has no right to it: another request gives them back
  redis.call('set', KEYS[2], did or '', 'px', did and ARGV[2] or 1)
  return available
end
announcePermits(ARGV[4], KEYS[3], available)
return 1
