-- The part of acquire.lua for a mutex that the owner holds already, that a client which
-- does not enter the wait queue holds, or that is free and has waiters. It needs token.lua,
-- grant_next.lua, mutex_yield.lua and what these need.

-- The token comes first: a server out of memory refuses it before anything has changed.
local function grant()
  local token, reserved = nextToken(counter, false, life, reserve, from)
  redis.call('hset', lock, owner, '1')
  redis.call('pexpire', lock, ttl)
  return {1, token, reserved, instant}
end

if holder then
  redis.call('zrem', queue, yieldMember) -- the holder has used the yield window
  local sound, seen = pcall(age, yieldState, 'peer')
  if sound and (not seen or seen >= yieldInterval) then pcall(recordPeer, yieldState) end
  return refused(left)
elseif holds then -- hset, which may need memory, comes last: the hold is kept without it
  local token = nextToken(counter, true, life)
  redis.call('pexpire', lock, ttl)
  redis.call('hset', lock, owner, count)
  if waiter ~= '' then redis.call('zrem', queue, waiter) end
  return {1, token, 0, instant}
elseif redis.call('exists', queue) == 0 then
  return grant()
end

-- The lock is free, and has waiters. A yield window longer than yieldMillis dates from
-- before the clock was set back.
local closes = tonumber(redis.call('zscore', queue, yieldMember))
if closes then
  local open = closes - micros()
  if open > 0 and open <= 1000 * yieldMillis then return refused(math.ceil(open / 1000)) end
  redis.call('zrem', queue, yieldMember)
end
local sound, open = pcall(yieldRemaining, yieldState)
if sound and open > 0 then return refused(math.ceil(open / 1000)) end
local others = grantNext(lock, queue, counter, publish, life, waiter)
if others then return refused(others) end
if waiter ~= '' then redis.call('zrem', queue, waiter) end
return grant()
