-- The queue of a fair lock.
--
--   list      Redisson's: the waiters, in their order of arrival
--   timeouts  Redisson's: waiter to the ms after which Redisson drops it
--   places    ours: waiter of ours to the ms after which we drop it, and half a ms more
--             if it was subscribed to its channel at its last request
--
-- A waiter of ours has its place prolonged well before it expires, so a dead one is known
-- soon after. A waiter of Redisson asks at any time, and keeps its place until its timeout.

-- include: number.lua
-- include: owner.lua
-- include: overdue.lua
-- include: publish.lua

-- endOf returns the ms after which a waiter is dropped, and the zset that has it; nil if
-- the waiter has no place.
local function endOf(waiter, timeouts, places)
  local by = redis.call('zscore', places, waiter)
  if by then return tonumber(by), places end
  by = redis.call('zscore', timeouts, waiter)
  if by then return tonumber(by), timeouts end
end

-- first drops dead waiters, and entries that are no owners, from the head of the queue.
-- It examines at most a hundred waiters, and fewer if their names are long, to keep the
-- run of the script short. Later runs drop the rest.
--
-- longest       the most ms for which places, and Redisson's timeouts, are kept. What lasts
--               longer, since the server's clock was set back, is shortened to that; nil
--               for no limit
-- unsubscribed  reports whether a living waiter of ours, with this end of its place, is no
--               longer subscribed; nil to skip the check. It keeps its place: if it has
--               only lost its connection, it is the head again with its next request
-- returns       the first living waiter, or false; whether any were dropped; whether there
--               may be a living one behind those examined
local function first(list, timeouts, places, now, longest, unsubscribed)
  local dropped, room = false, 100
  while room > 0 do
    local waiter = redis.call('lindex', list, 0)
    if not waiter then
      if dropped then -- what others have dropped may have left more
        redis.call('unlink', timeouts)
        removeOverdue(places, now)
      end
      return false, dropped, false
    end
    local by, kept
    if isOwner(waiter) then by, kept = endOf(waiter, timeouts, places) end
    local living = by and by > now
    local departed = living and unsubscribed and kept == places and unsubscribed(waiter, by)
    if living and not departed then
      local limit = longest and longest[kept]
      if limit and math.floor(by) > now + limit then
        redis.call('zadd', kept, decimal(now + limit) .. (by % 1 > 0 and '.5' or ''), waiter)
      end
      return waiter, dropped, false
    end
    redis.call('lpop', list)
    redis.call('zrem', timeouts, waiter)
    if not departed then redis.call('zrem', places, waiter) end
    dropped, room = true, room - 1 - math.floor(#waiter / 10000)
  end
  return false, true, true
end

-- leave removes a waiter and its timeout from the queue. In a long list it looks at both
-- ends only; a waiter elsewhere is dropped when it becomes the head, by Redisson too.
local function leave(list, timeouts, waiter)
  if not redis.call('zscore', timeouts, waiter) then return end
  if redis.call('lpos', list, waiter, 'maxlen', 1000) then
    redis.call('lrem', list, 1, waiter)
  elseif redis.call('lpos', list, waiter, 'rank', -1, 'maxlen', 1000) then
    redis.call('lrem', list, -1, waiter)
  elseif redis.call('llen', list) > 2000 then
    redis.call('zadd', timeouts, 1, waiter)
    return
  end
  redis.call('zrem', timeouts, waiter)
end

-- spare keeps other places after one of ours was found to have expired although its waiter
-- lives: the server was down, or its clock was set, so theirs may have expired for that
-- reason. It keeps a hundred with each request.
local function spare(places, now, wait)
  for _, waiter in ipairs(redis.call('zrangebyscore', places, '-inf', decimal(now + wait), 'limit', 0, 100)) do
    redis.call('zadd', places, decimal(now + wait), waiter)
  end
end

-- mostWait is the most ms that a waiter of Redisson's counts for. One with a limit, of tryLock, may wait for
-- longer than threadWait, which is for a thread without a limit. It counts for five minutes at most.
local function mostWait(threadWait) return math.max(threadWait, 300000) end

-- theirWaits returns the sum of the waits of Redisson's waiters before each of the first hundred
-- of the queue. A timeout of Redisson's is later by its wait than the one before. Behind a
-- waiter of ours, and at the head, it does not show the wait, which counts as threadWait.
local function theirWaits(list, timeouts, places, now, threadWait)
  local before, sum, last = {}, 0, nil
  local most = mostWait(threadWait)
  for at = 0, 99 do
    local waiter = redis.call('lindex', list, at)
    if not waiter then break end
    before[waiter] = sum
    local by, kept = endOf(waiter, timeouts, places)
    if kept ~= places or by <= now then
      sum = sum + (kept == timeouts and last and math.min(most, math.max(by - last, 0)) or threadWait)
    end
    last = kept == timeouts and by or nil
  end
  return before
end

-- keepTimeouts prolongs the timeouts of waiters of ours, whose places have just been kept.
-- It returns how many waiters of Redisson's there are at most.
--
-- A waiter of Redisson's lowers the timeouts behind it by its own wait when it is served and
-- when it gives up. Our timeout is therefore later by the waits before it, of which theirWaits
-- knows the first hundred: so Redisson drops no waiter of ours before the end of the present lease, of which left
-- ms are left.
local function keepTimeouts(list, timeouts, places, now, wait, threadWait, left, waiters)
  local ahead = 10000 -- of the server's clock; Redisson waits for a dead head for so long
  local others = math.max(0, redis.call('llen', list) - redis.call('zcount', places, decimal(now), '+inf'))
  local before = others > 0 and theirWaits(list, timeouts, places, now, threadWait) or {}
  local entries = {}
  for _, waiter in ipairs(waiters) do
    entries[#entries + 1] = decimal(now + wait + ahead + math.max(left, 0) + (before[waiter] or others * threadWait))
    entries[#entries + 1] = waiter
  end
  redis.call('zadd', timeouts, unpack(entries))
  return others
end

-- haveTheirs reports whether the queue may have waiters of Redisson's, dead or not. In a
-- long queue a dead waiter of ours counts as one of them.
local function haveTheirs(list, places, now)
  local waiting = redis.call('llen', list)
  if waiting <= redis.call('zcount', places, decimal(now), '+inf') then return false end
  if waiting > 100 then return true end
  for at = 0, waiting - 1 do
    if not isOurs(redis.call('lindex', list, at)) then return true end
  end
  return false
end

-- keepQueue has a queue that its waiters never leave expire. Redisson relies on its waiters to
-- leave, so its keys have no TTL while it has waiters.
local function keepQueue(list, timeouts, places, theirs)
  for _, key in ipairs({list, timeouts, places}) do
    if theirs and key ~= places then
      redis.call('persist', key)
    else
      redis.call('pexpire', key, 600000)
    end
  end
end

-- leaveToTheirs removes the TTL that waiters of ours have given the queue, once one of
-- ours leaves it to waiters of Redisson's: Redisson never prolongs it.
local function leaveToTheirs(list, timeouts, places, now)
  if redis.call('pttl', list) >= 0 and haveTheirs(list, places, now) then keepQueue(list, timeouts, places, true) end
end

-- wake makes the head of the queue ask: the first living waiter, as first returns it. If
-- the head is not known yet, wake notifies our waiter with the latest place, whose
-- request drops more dead waiters.
local function wake(publish, channel, places, head, more)
  if more then head = redis.call('zrange', places, -1, -1)[1] end
  if head then send(publish, channel .. ':' .. head, '0') end
end
