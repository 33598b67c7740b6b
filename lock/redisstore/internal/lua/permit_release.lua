-- Gives permits back.
--
-- KEYS  1 the count
--       2 the permits in use
--       3 the channel
-- ARGV  1 the first permit's id
--       2 the command to publish with
--       3 how many permits
-- returns  1 given back, -1 one of them is not in use, or has expired

-- include: milliseconds.lua
-- include: counter.lua
-- include: expiry.lua

local count = countOf(KEYS[1])
if count == false or not isPermits(KEYS[2]) then return -1 end
local ids = idsOf(ARGV[1], tonumber(ARGV[3]))
local expires = redis.call('zscore', KEYS[2], ids[1])
-- Permits with an end are those of a number that has ended just now: made anew, it would have no end.
local ended = not count and redis.call('pttl', KEYS[2]) >= 0
local removed = redis.call('zrem', KEYS[2], unpack(ids))
if removed > 0 and not ended then
  local available = redis.pcall('incrby', KEYS[1], removed)
  if type(available) == 'table' then -- the user has no right to it: they stay in use until their end
    if removed == #ids then put(KEYS[2], ids, expires) end
    return available
  end
  announcePermits(ARGV[2], KEYS[3], available)
end
return expires and removed == #ids and tonumber(expires) > milliseconds() and 1 or -1
