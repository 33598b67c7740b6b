-- Lowers an owner's holds of a plain lock; without holds the lock is free.
--
-- KEYS  1 the lock, a string: its owner
--       2 its channel
--       3 its yield state, a hash
-- ARGV  1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
-- returns  1 freed, 0 kept, -1 the owner has no hold
local lock, channel, yieldState = KEYS[1], KEYS[2], KEYS[3]
local owner, count, ttl, publish = unpack(ARGV)

local held = redis.pcall('getrange', lock, 0, 127) -- an owner is shorter
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
if held ~= owner then return -1 end
if count ~= '0' then
  redis.call('pexpire', lock, ttl)
  return 0
end
redis.call('del', lock)

-- The lock is free, even if the yield state is broken. Without waiters of ours, peers are
-- not kept out.
if send(publish, channel, '0') > 0 then
  pcall(recordHandOff, yieldState)
else
  redis.pcall('hdel', yieldState, 'since')
end
return 1
