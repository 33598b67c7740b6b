-- Lowers an owner's holds of a plain lock; without holds the lock is free.
--
-- KEYS  1 the lock, a string: its owner
--       2 its channel
--       3 its yield state, a hash
-- ARGV  1 the owner
--       2 the command to publish with
--       3 the holds it keeps
--       4 the lease in ms, for a lock that is kept
--         3 and 4 are absent from the release of an owner that keeps no holds
-- returns  1 freed, 0 kept, -1 the owner has no hold
local lock, channel, yieldState = KEYS[1], KEYS[2], KEYS[3]
local owner, publish, count, ttl = unpack(ARGV)

local held = redis.pcall('getrange', lock, 0, 127) -- an owner is shorter
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
if held ~= owner then return -1 end
if count and count ~= '0' then
  redis.call('pexpire', lock, ttl)
  return 0
end
redis.call('del', lock)

-- The lock is free. Most have no waiters of ours, see acquire.lua. Peers are not kept out
-- of those.
local received = publish == 'publish' and redis.call('publish', channel, '0')
if received == 0 then
  redis.pcall('hdel', yieldState, 'since')
  return 1
end
