-- Grants a mutex to an owner if it is free, and no other waiter is before the owner in
-- the wait queue, or if it is the owner's already.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its wait queue
--       3 its fencing counter
--       4 its turns
-- ARGV  1 the command to publish with
--       2 the life of the fencing counter in ms, 0 for no end
--       3 the lease in ms
--       4 the owner
--       5 the holds it has once granted; more than 1 only if it has the lock already
--       6 the owner's member in the wait queue, '' if it does not wait
--       7 how many tokens the owner would like beside the grant's
-- returns  {1, token, n}   granted, and the n tokens after it
--          {0, ms, at}     another owner holds it for so long yet (-1: without an
--                          end); the owner is in the wait queue since before the µs at
--                          (0: not)
--          {2, ms, 0}      the key is not a lock of this format
--          {3, 0, 0}       the owner wants a further hold but has none
local lock, queue, counter, yieldState = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, life, ttl, owner, count, waiter, reserve = unpack(ARGV)

-- A token comes first: without memory it is refused, before anything was changed.
local function grant()
  local token, reserved = nextToken(counter, false, life, reserve)
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, ttl)
  return {1, token, reserved}
end

-- Most locks are free, and nobody waits for them. What follows is for the others.
if count == '1' and redis.call('exists', lock, queue) == 0 then return grant() end
