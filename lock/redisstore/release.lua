-- Lowers an owner's holds of a mutex. Without holds the lock goes to the first of the
-- wait queue, or is free. An owner without holds leaves the wait queue.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its wait queue
--       3 its fencing counter
--       4 its yield state
-- ARGV  1 the command to publish with
--       2 the life of the fencing counter in ms, 0 for no end
--       3 the owner
--       4 the holds it keeps
--       5 the lease in ms, for a lock that is kept
--       6 the owner's member in the wait queue, '' if it did not wait
--       7 '1' if the lock was granted to the owner by another one's release
--       8 the channel of clients that do not enter the wait queue, Redisson's
-- returns  1 freed, 0 kept, -1 the owner has no hold
local lock, queue, counter, yieldState = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, life, owner, count, ttl, waiter, grantedByRelease, channel = unpack(ARGV)

-- Deleting the last field deletes the hash.
local holds = redis.pcall(count == '0' and 'hdel' or 'hget', lock, owner)
if type(holds) == 'table' then
  if not string.find(holds.err, 'WRONGTYPE', 1, true) then return holds end
  holds = false
end
if not holds or holds == 0 then
  -- The wait queue may be another program's key, in which the owner has no place.
  if waiter ~= '' then redis.pcall('zrem', queue, waiter) end
  return -1
end
if count ~= '0' then -- hset may need memory, so it must not be the first write
  redis.call('pexpire', lock, ttl)
  redis.call('hset', lock, owner, count)
  return 0
end

-- The lock is free, and the release has succeeded even if the wait queue is broken:
-- subscribers ask. Most locks have no waiters. The rest of the script is for the others.
local popped, since
if grantedByRelease ~= '1' then
  local head = redis.pcall('zpopmin', queue)
  popped, since = head[1], head[2]
  if not popped then
    send(publish, channel, '0')
    return 1
  end
end
