-- Grants a plain lock to an owner if it is free and not left to peers, or if the owner
-- holds it already.
--
-- KEYS  1 the lock, a string: its owner
--       2 its fencing counter
--       3 its yield state, a hash
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
-- returns  {1, token}  granted
--          {0, ms}     a leasewheel owner holds it (ms left, -1: without an end), or it is
--                      left to peers for so many ms
--          {2, ms}     the key is not a string
--          {3, 0}      the owner wants a further hold but has none
--          {5, ms}     a peer holds it, which will not publish its release
local lock, counter, yieldState = KEYS[1], KEYS[2], KEYS[3]
local ttl, owner, count, life = unpack(ARGV)

local left = redis.call('pttl', lock)
if left == -2 then
  if count ~= '1' then return {3, 0} end
  local open = yieldRemaining(yieldState)
  if open > 0 then return {0, math.ceil(open / 1000)} end
  local token = nextToken(counter, false, life)
  redis.call('set', lock, owner, 'px', ttl)
  return {1, token}
end

local held = redis.pcall('getrange', lock, 0, 127) -- an owner is shorter
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then return {2, left} end
  return held
elseif held == owner then
  local token = nextToken(counter, true, life)
  redis.call('pexpire', lock, ttl)
  return {1, token}
elseif count ~= '1' then
  return {3, 0}
elseif isOwner(held) then
  return {0, left}
end
recordPeer(yieldState)
return {5, left}
