-- The queue of a fair lock.
--
--   list      Redisson's: the waiters, in their order of arrival
--   timeouts  Redisson's: waiter to the ms after which Redisson drops it
--   places    ours: waiter of ours to the ms after which we drop it
--
-- A waiter of ours asks again well before, so that soon after its end it is known
-- to be dead. A waiter of Redisson asks when it likes; it is given its timeout.

local function milliseconds()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

local function number(n) return string.format('%.0f', n) end

-- first drops dead waiters from the head of the queue and returns the first living
-- one, or false; and whether there were dead ones.
local function first(list, timeouts, places, now)
  local dropped = false
  while true do
    local waiter = redis.call('lindex', list, 0)
    if not waiter then
      if dropped then -- what others have dropped may have left more
        redis.call('del', timeouts)
        redis.call('zremrangebyscore', places, '-inf', number(now))
      end
      return false, dropped
    end
    local by = redis.call('zscore', places, waiter) or redis.call('zscore', timeouts, waiter)
    if by and tonumber(by) > now then return waiter, dropped end
    redis.call('lpop', list)
    redis.call('zrem', timeouts, waiter)
    redis.call('zrem', places, waiter)
    dropped = true
  end
end
