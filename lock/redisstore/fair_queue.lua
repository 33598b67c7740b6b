-- The queue of a fair lock.
--
--   list      Redisson's: the waiters, in their order of arrival
--   timeouts  Redisson's: waiter to the ms after which Redisson drops it
--   places    ours: waiter of ours to the ms after which we drop it, and half a ms more
--             if it listened on its channel when it asked last
--
-- A waiter of ours asks again well before, so that soon after its end it is known
-- to be dead. A waiter of Redisson asks when it likes; it is given its timeout.

-- endOf returns the ms after which a waiter is dropped, and which zset has it; nil if it
-- has no place.
local function endOf(waiter, timeouts, places)
  local by = redis.call('zscore', places, waiter)
  if by then return tonumber(by), places end
  by = redis.call('zscore', timeouts, waiter)
  if by then return tonumber(by), timeouts end
end

-- first drops dead waiters from the head of the queue, and whoever is no owner. It looks
-- at a hundred waiters at most, at fewer if their names are long: a run of a script is
-- short, and later runs drop the rest.
--
-- longest  for how many ms places are kept at most, and timeouts by Redisson: what is
--          kept for longer, since the server's clock was set back, is kept for so long
--          from now on; nil for no such limit
-- deaf     reports whether a waiter of ours that is kept until then does not listen any
--          more; nil to ask none. It keeps its place: who has only lost its connection is
--          the head again with the next request
-- returns  the first living waiter, or false; whether it has dropped any; whether there
--          may be a living one behind those that it has looked at
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

-- leave takes a waiter out of the list and its timeout with it. In a long list it looks at
-- both ends alone; a waiter elsewhere is dropped when its turn comes, by Redisson too.
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

-- theirsBefore returns how many waiters of Redisson's are before one of ours, who is
-- looked for among the first hundred; most if it is not there.
local function theirsBefore(list, places, waiter, now, most)
  local before = 0
  for at = 0, 99 do
    local other = redis.call('lindex', list, at)
    if not other or other == waiter then return math.min(before, most) end
    local by = tonumber(redis.call('zscore', places, other) or 0)
    if by <= now then before = before + 1 end
  end
  return most
end

-- wake has the head of the queue ask: the first living waiter, as first returns it. If
-- that is not known yet, the waiter of ours asks that has asked last, and so drops dead
-- ones until it is.
local function wake(publish, channel, places, head, more)
  if more then head = redis.call('zrange', places, -1, -1)[1] end
  if head then send(publish, channel .. ':' .. head, '0') end
end
