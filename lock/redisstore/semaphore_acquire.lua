-- Takes permits of a semaphore if there are enough.
--
-- KEYS  1 the count
--       2 what was done for this owner
--       3 and on: what was done for others, to be forgotten
-- ARGV  1 how many
--       2 for how many ms to remember what was done
-- returns  {1, permits left}  taken
--          {0, -1}            there are too few
--          {2, ms}            the key is not a count
local function forget()
  for i = 3, #KEYS do redis.call('del', KEYS[i]) end
end

local count = countOf(KEYS[1])
local did = redis.call('get', KEYS[2])
if did == 'taken' then return {1, count or 0} end
if count == false then return {2, redis.call('pttl', KEYS[1])} end
if did or not count or count < tonumber(ARGV[1]) then
  forget()
  return {0, -1}
end

-- The first write is one that a server out of memory refuses.
redis.call('set', KEYS[2], 'taken', 'px', ARGV[2])
forget()
return {1, redis.call('decrby', KEYS[1], ARGV[1])}
