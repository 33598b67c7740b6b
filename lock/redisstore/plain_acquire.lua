-- Grants a plain lock to an owner if it is free and not left to peers, or if the owner
-- holds it already.
--
-- KEYS  1 the lock, a string: its owner
--       2 its yield state, a hash
--       3 its fencing counter; absent if no token is wanted
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
--         3 and 4 are absent from a request for one hold without a token
-- returns  {1, token}  granted; the token is 0 if none is wanted
--          {0, ms}     a leasewheel owner holds it (ms left, -1: without an end), or it is
--                      left to peers for so many ms
--          {2, ms}     the key is not a string
--          {3, 0}      the owner wants a further hold but has none
--          {5, ms}     a peer holds it, which will not publish its release
local lock, yieldState, counter = KEYS[1], KEYS[2], KEYS[3]
local ttl, owner, count, life = unpack(ARGV)

-- Most locks are free and have no yield state. See acquire.lua.
if not count and redis.call('exists', lock, yieldState) == 0 then
  redis.call('set', lock, owner, 'px', ttl)
  return {1, 0}
end
