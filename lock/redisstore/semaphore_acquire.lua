-- Takes permits of a semaphore if there are enough.
--
-- KEYS  1 the count
--       2 what was done for this owner
--       … what was done for owners who know it
-- ARGV  1 how many
--       2 for how many ms to remember what was done
--       3 for how many ms once the owner knows it
-- returns  {1, permits left}  taken
--          {0, -1}            there are too few
--          {2, ms}            the key is not a count
local function settle()
  for i = 3, #KEYS do redis.call('pexpire', KEYS[i], ARGV[3]) end
end

local count = countOf(KEYS[1])
local did = redis.call('get', KEYS[2])
if did == 'taken' then return {1, count or 0} end
if count == false then return {2, redis.call('pttl', KEYS[1])} end
if did or not count or count < tonumber(ARGV[1]) then
  settle()
  return {0, -1}
end

redis.call('set', KEYS[2], 'taken', 'px', ARGV[2])
settle()
return {1, redis.call('decrby', KEYS[1], ARGV[1])}
