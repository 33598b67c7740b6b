-- Lowers an owner's holds of a lock; without holds the lock is free, and a waiter
-- is told.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its channel
-- ARGV  1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
-- returns  1 freed, 0 kept, -1 the owner has no hold
local holds = redis.pcall('hget', KEYS[1], ARGV[1])
if type(holds) == 'table' then
  if string.find(holds.err, 'WRONGTYPE', 1, true) then return -1 end
  return holds
elseif not holds then
  return -1
end
if ARGV[2] ~= '0' then
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  redis.call('pexpire', KEYS[1], ARGV[3])
  return 0
end
redis.call('hdel', KEYS[1], ARGV[1])
redis.call(ARGV[4], KEYS[2], '0')
return 1
