-- Writes a counter unless its fencing token is older than the newest one that has
-- written.
--
-- KEYS  1 the counter, a hash of value and fence
-- ARGV  1 the token, 2 the value
-- returns 1 written, 0 refused as stale
local newest = tonumber(redis.call('hget', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < newest then
  return 0
end
redis.call('hset', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1
