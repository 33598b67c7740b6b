-- Lowers a writer's holds. Without holds the lock is free, or its owner's own readers
-- have it, and its waiters are notified.
--
-- KEYS  1 the lock
--       2 its channel
--       3 the claim of a waiting writer
-- ARGV  1 the owner's field
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
-- returns  1 given back, 0 kept, -1 the owner has no hold

-- include: number.lua
-- include: publish_all.lua
-- include: readwrite.lua

local kept = tonumber(ARGV[2])
if kept == 0 and redis.pcall('get', KEYS[3]) == ARGV[1] then
  redis.call('del', KEYS[3])
  sendAll(ARGV[4], KEYS[2])
end
if modeOf(KEYS[1]) ~= 'write' then return -1 end
local holds = holdsOf(KEYS[1], ARGV[1])
if not holds then return -1 end

if kept > 0 then
  -- A server out of memory refuses hset, unless the script has written before.
  prolong(KEYS[1], ARGV[3])
  redis.call('hset', KEYS[1], ARGV[1], decimal(math.min(kept, holds)))
  return 0
end
redis.call('hdel', KEYS[1], ARGV[1])
if settle(KEYS[1]) then
  redis.call('hset', KEYS[1], 'mode', 'read')
else
  redis.call('unlink', KEYS[1])
end
sendAll(ARGV[4], KEYS[2])
return 1
