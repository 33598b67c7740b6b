-- Grants a mutex to an owner if it is free and no other waiter precedes the owner in the
-- wait queue, or if the owner holds it already.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its wait queue
--       3 its fencing counter
--       4 its yield state
-- ARGV  1 the command to publish with
--       2 the life of the fencing counter in ms, 0 for no end
--       3 the lease in ms
--       4 the owner
--       5 the holds it has once granted; more than 1 only if it has the lock already
--       6 the owner's member in the wait queue, '' if it does not wait
--       7 how many tokens to reserve beside the grant's
-- returns  {1, token, n}   granted, and the n tokens after it are reserved
--          {0, ms, at}     another owner holds it (ms left, -1: without an end), or it is
--                          left to others for so many ms; the owner is in the wait
--                          queue since before the µs at (0: not)
--          {2, ms, 0}      the key is not a lock of this format
--          {3, 0, 0}       the owner wants a further hold but has none
local lock, queue, counter, yieldState = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, life, ttl, owner, count, waiter, reserve = unpack(ARGV)

-- The token comes first: a server out of memory refuses it before anything has changed.
local function grant()
  local token, reserved = nextToken(counter, false, life, reserve)
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, ttl)
  return {1, token, reserved}
end

-- Most locks are free and without waiters. The rest of the script is for the others.
if count == '1' and redis.call('exists', lock, queue) == 0 then return grant() end
