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
local used, expires = inUse(KEYS[2], ids)
-- Permits with an end are those of a number that has ended just now: made anew, it would have no end.
local ended = not count and redis.call('pttl', KEYS[2]) >= 0
-- It removes nothing: a user without the right to it gives none back, and a server out of memory
-- accepts incrby then.
redis.call('zrem', KEYS[2], '')
local available = used > 0 and not ended and redis.call('incrby', KEYS[1], used)
redis.call('zrem', KEYS[2], unpack(ids))
if available then announcePermits(ARGV[2], KEYS[3], available) end
return expires and used == #ids and tonumber(expires) > milliseconds() and 1 or -1
