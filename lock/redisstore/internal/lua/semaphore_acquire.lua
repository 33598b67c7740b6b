-- Takes permits of a semaphore if enough are available.
--
-- KEYS  1 the count
--       2 the record of this owner's request
-- ARGV  1 how many
--       2 for how many ms to keep the record
-- returns  {1, permits left}  taken
--          {0, -1}            too few are available
--          {2, ms}            the key is not a count

-- include: deadline.lua
-- include: counter.lua

local count = countOf(KEYS[1])
local did = redis.call('get', KEYS[2])
if did == 'taken' then -- a grant writes, see granting in script.go; this one needs no memory
  redis.call('pexpire', KEYS[2], ARGV[2])
  return {1, math.max(count or 0, 0)} -- it may have been reduced below zero since
end
if count == false then return {2, redis.call('pttl', KEYS[1])} end
if did or not count or count < tonumber(ARGV[1]) then return {0, -1} end

-- The first write changes nothing. A server out of memory refuses it, and that of a user without
-- the right to set; one without the right to decrby leaves no record of permits.
redis.call('set', KEYS[2], '', 'xx')
local left = redis.call('decrby', KEYS[1], ARGV[1])
redis.call('set', KEYS[2], 'taken', 'px', ARGV[2])
return {1, left}
