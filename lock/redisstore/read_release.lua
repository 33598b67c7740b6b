-- Lowers a reader's holds. When the last reader has none, the lock is free and a
-- writer is told.
--
-- KEYS  1 the lock
--       2 its channel
--       3 what the keys of the owner's holds begin with
--       4 what the keys of all holds begin with
-- ARGV  1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
-- returns  1 given back, 0 kept, -1 the owner has no hold
local mode = modeOf(KEYS[1])
if mode ~= 'read' and mode ~= 'write' then return -1 end
local holds = tonumber(redis.call('hget', KEYS[1], ARGV[1]))
if not holds then return -1 end

local dead = lasts(KEYS[3], holds) < 0
local kept = dead and 0 or math.min(tonumber(ARGV[2]), holds)
for i = kept + 1, holds do
  redis.call('del', KEYS[3] .. ':' .. i)
end
if kept > 0 then
  redis.call('hset', KEYS[1], ARGV[1], kept)
  redis.call('pexpire', KEYS[3] .. ':' .. kept, ARGV[3])
  prolong(KEYS[1], ARGV[3])
  return 0
end
redis.call('hdel', KEYS[1], ARGV[1])
if mode == 'read' and not settle(KEYS[1], KEYS[4]) then
  redis.call('del', KEYS[1])
  redis.call(ARGV[4], KEYS[2], '0')
end
return dead and -1 or 1
