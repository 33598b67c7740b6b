-- Lowers an owner's holds of a mutex. Without holds the lock goes to the first of the
-- wait queue, or is free. An owner without holds leaves the wait queue.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its wait queue
--       3 its fencing counter
--       4 its yield state
-- ARGV  1 the command to publish with
--       2 the channel of clients that do not enter the wait queue, Redisson's
--       3 the owner
--       4 the life of the fencing counter in ms, 0 for no end
--       5 the holds it keeps
--       6 the lease in ms, for a lock that is kept
--       7 the owner's member in the wait queue, '' if it did not wait
--       8 '1' if the lock was granted to the owner by another one's release
--         5 to 8 are absent from the release of an owner that keeps no holds, did not wait
--         and was granted the lock by no release
-- returns  1 freed, 0 kept, -1 the owner has no hold
local lock, queue, counter, yieldState = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, channel, owner, life, count, ttl, waiter, grantedByRelease = unpack(ARGV)

-- Deleting the last field deletes the hash.
local holds = redis.pcall((not count or count == '0') and 'hdel' or 'hget', lock, owner)
if type(holds) == 'table' then
  if not string.find(holds.err, 'WRONGTYPE', 1, true) then return holds end
  holds = false
end
if not holds or holds == 0 then
  -- The wait queue may be another program's key, in which the owner has no place.
  if waiter and waiter ~= '' then redis.pcall('zrem', queue, waiter) end
  return -1
end
if count and count ~= '0' then -- hset may need memory, so it must not be the first write
  redis.call('pexpire', lock, ttl)
  redis.call('hset', lock, owner, count)
  return 0
end

-- The lock is free, and the release has succeeded even if the wait queue is broken:
-- subscribers ask. Most locks have no waiters. The rest of the script is for the others.
local head = redis.pcall('zpopmin', queue)
local popped, arrived = head[1], head[2]
if not popped and grantedByRelease ~= '1' then -- as send in publish.lua does, which would have to be made
  if publish ~= 'publish' then redis.call('spublish', channel, '0') end
  if publish == 'publish' or publish == 'both' or publish == 'auto' and redis.call('pubsub', 'numsub', channel)[2] ~= 0 then
    redis.call('publish', channel, '0')
  end
  return 1
end
