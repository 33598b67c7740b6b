-- Gives a permit back.
--
-- KEYS  1 the count
--       2 the permits in use
--       3 the channel
-- ARGV  1 the permit's id
--       2 the command to publish with
-- returns  1 given back, -1 it is not in use, or has expired
local count = countOf(KEYS[1])
if count == false or not isPermits(KEYS[2]) then return -1 end
local expires = redis.call('zscore', KEYS[2], ARGV[1])
if not expires then return -1 end
redis.call('zrem', KEYS[2], ARGV[1])
offer(ARGV[2], KEYS[3], redis.call('incrby', KEYS[1], 1))
return tonumber(expires) > milliseconds() and 1 or -1
