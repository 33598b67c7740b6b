-- Permits that expire, in Redisson's format:
--
--   count    how many are available
--   permits  zset of the ids of those in use, each with the ms (Unix time) at which it
--            expires, 922337203685477 for never

local function milliseconds()
  local now = redis.call('time')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end

-- isPermits reports whether a key may be that of permits in use.
local function isPermits(key)
  local kind = redis.call('type', key).ok
  return kind == 'zset' or kind == 'none'
end

-- reclaim takes expired permits back and returns the count, which was given.
local function reclaim(key, count, permits, now, publish, channel)
  local expired = redis.call('zremrangebyscore', permits, '-inf', number(now))
  if expired == 0 or not count then return count end
  count = redis.call('incrby', key, expired)
  offer(publish, channel, count)
  return count
end
