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
local lock, line, counter, turns = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, life, ttl, owner, count, waiter, spare = unpack(ARGV)

-- A token comes first: without memory it is refused, before anything was changed.
local function grant()
  local token, reserved = nextToken(counter, false, life, spare)
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, ttl)
  return {1, token, reserved}
end

if count == '1' and redis.call('exists', lock, line) == 0 then return grant() end

local function refused(left)
  return {0, left, waiter ~= '' and lineUp(line, waiter) or 0}
end

local left = redis.call('pttl', lock)
if left ~= -2 then
  local holds = redis.pcall('hget', lock, owner)
  if type(holds) == 'table' then
    if string.find(holds.err, 'WRONGTYPE', 1, true) then return {2, left, 0} end
    return holds
  elseif holds then -- what may need memory comes last: what is held is kept
    local token = nextToken(counter, true, life)
    redis.call('pexpire', lock, ttl)
    redis.call('hset', lock, owner, count)
    if waiter ~= '' then redis.call('zrem', line, waiter) end
    return {1, token, 0}
  elseif count ~= '1' then
    return {3, 0, 0}
  elseif foreign(lock) then
    return {2, left, 0}
  end
  redis.call('zrem', line, gap) -- the client that it was left to has had its turn
  if not isOurs(redis.call('hrandfield', lock)) then pcall(seePeer, turns) end
  return refused(left)
elseif count ~= '1' then
  return {3, 0, 0}
end

-- The lock is free, and somebody waits for it. A gap that is longer than it can be is
-- of before the clock was set back.
local closes = tonumber(redis.call('zscore', line, gap))
if closes then
  local open = closes - micros()
  if open > 0 and open <= 1000 * yields then return refused(math.ceil(open / 1000)) end
  redis.call('zrem', line, gap)
end
local sound, open = pcall(openTurn, turns)
if sound and open > 0 then return refused(math.ceil(open / 1000)) end
local others = serve(lock, line, counter, publish, life, waiter)
if others then return refused(others) end
if waiter ~= '' then redis.call('zrem', line, waiter) end
return grant()
