-- The part of acquire.lua for a mutex that is held or has waiters, and for requests with
-- all arguments.
count, waiter, reserve = count or '1', waiter or '', reserve or '0'

-- The token comes first: a server out of memory refuses it before anything has changed.
local function grant()
  local token, reserved = nextToken(counter, false, life, reserve, from)
  redis.call('hset', lock, owner, 1)
  redis.call('pexpire', lock, ttl)
  return {1, token, reserved, instant}
end

local function refused(left)
  return {0, left, waiter ~= '' and enqueue(queue, waiter) or 0}
end

local left = redis.call('pttl', lock)
if left ~= -2 then
  local holds = redis.pcall('hget', lock, owner)
  if type(holds) == 'table' then
    if string.find(holds.err, 'WRONGTYPE', 1, true) then return {2, left, 0} end
    return holds
  elseif holds then -- hset, which may need memory, comes last: the hold is kept without it
    local token = nextToken(counter, true, life)
    redis.call('pexpire', lock, ttl)
    redis.call('hset', lock, owner, count)
    if waiter ~= '' then redis.call('zrem', queue, waiter) end
    return {1, token, 0, instant}
  elseif count ~= '1' then
    return {3, 0, 0}
  end
  local holder = anyOwner(lock)
  if not holder then return {2, left, 0} end
  if not isOurs(holder) then
    redis.call('zrem', queue, yieldMember) -- the holder has used the yield window
    local sound, seen = pcall(age, yieldState, 'peer')
    if sound and (not seen or seen >= yieldInterval) then pcall(recordPeer, yieldState) end
  end
  return refused(left)
elseif count ~= '1' then
  return {3, 0, 0}
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
