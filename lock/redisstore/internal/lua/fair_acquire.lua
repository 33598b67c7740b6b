-- Grants a fair lock to an owner if the owner holds it already, or if it is free and the
-- owner is the head of the queue. Otherwise gives the owner a place in the queue, or
-- keeps the one it has.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its fencing counter
--       3 the queue's list, 4 its timeouts, 5 its places
--       6 the prefix of its waiters' channels
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
--       5 how long the place is kept in ms, 0 for none
--       6 the command to publish with
--       7 how long Redisson keeps the place of a thread in ms
-- returns  {1, token}  granted
--          {0, ms}     another owner holds it (ms left, -1: without an end, -2: it is
--                      free), and this owner is the head or does not wait
--          {4, ms}     the same, but this owner is not the head
--          {2, ms}     the key is not a lock of this format
--          {3, 0}      the owner wants a further hold but has none
--          {5, ms}     a living one may be behind more dead waiters, which the next run drops

-- include: deadline.lua
-- include: milliseconds.lua
-- include: number.lua
-- include: owner.lua
-- include: token.lua
-- include: take.lua
-- include: listeners.lua
-- include: fair_queue.lua

local lock, list, timeouts, places = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local lease, owner, count, wait, threadWait = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[5]), tonumber(ARGV[7])

local left = redis.call('pttl', lock)
local holds = redis.pcall('hget', lock, owner)
if type(holds) == 'table' then
  if string.find(holds.err, 'WRONGTYPE', 1, true) then return {2, left} end
  return holds
elseif not holds and left ~= -2 and foreign(lock) then
  return {2, left}
elseif not holds and count ~= '1' then
  return {3, 0}
end

-- A grant begins with a token, since none is given without one.
local function grant()
  local token = nextToken(KEYS[2], left ~= -2, ARGV[4])
  take(lock, owner, count, lease)
  return {1, token}
end
if holds then return grant() end

local now = milliseconds()
local place = tonumber(redis.call('zscore', places, owner))
if place and place <= now then spare(places, now, wait) end
local queued = place or redis.call('zscore', timeouts, owner)
local ok, connections = wait > 0, 0
if ok then ok, connections = pcall(oursListening, ARGV[6], KEYS[6] .. ':' .. owner) end
local keptUntil = decimal(now + wait) .. (ok and connections > 0 and '.5' or '')
if queued then redis.call('zadd', places, keptUntil, owner) end
if place and not redis.call('zscore', timeouts, owner) then
  redis.call('lpush', list, owner) -- Redisson has dropped it, from the head
end

-- While the lock is held, a waiter of Redisson's may wait without a limit.
local longest = wait > 0 and {[places] = wait, [timeouts] = left == -2 and mostWait(threadWait) * redis.call('llen', list)} or nil
local head, dropped, more = first(list, timeouts, places, now, longest)
if left == -2 and not more and (not head or head == owner) then
  local granted = grant()
  if head then redis.call('lpop', list) end
  redis.call('zrem', timeouts, owner)
  redis.call('zrem', places, owner)
  leaveToTheirs(list, timeouts, places, now)
  return granted
end
-- A thread of Redisson before 3.32 whose holder was renewed and then died awaits a message.
if left == -2 and (dropped or not isOurs(head)) then wake(ARGV[6], KEYS[6], places, head, more and wait == 0) end
if wait == 0 then return more and left == -2 and {5, 1} or {0, left} end

if not queued then
  redis.call('rpush', list, owner)
  head = head or owner
end
redis.call('zadd', places, keptUntil, owner)
local others = keepTimeouts(list, timeouts, places, now, wait, threadWait, left, {owner})
keepQueue(list, timeouts, places, others > 0 and haveTheirs(list, places, now))
if more then return {5, 1} end
return {head == owner and 0 or 4, left}
