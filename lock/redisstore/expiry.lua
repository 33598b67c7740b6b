-- Permits that expire, in Redisson's format:
--
--   count    how many are available
--   permits  zset of the ids of those in use, each with the ms (Unix time) at which it
--            expires, 922337203685477 for never

-- isPermits reports whether a key may be that of permits in use.
local function isPermits(key)
  local kind = redis.call('type', key).ok
  return kind == 'zset' or kind == 'none'
end

-- idsOf returns the ids of so many permits, at most a hundred, that are one lease: the
-- first, and those that have a number in its last four bytes.
local function idsOf(first, several)
  local ids = {first}
  for i = 1, several - 1 do
    ids[i + 1] = string.sub(first, 1, 12) .. string.char(0, 0, 0, i)
  end
  return ids
end

-- put has permits in use until then.
local function put(permits, ids, expires)
  local pairs = {}
  for i, id in ipairs(ids) do
    pairs[2 * i - 1], pairs[2 * i] = expires, id
  end
  redis.call('zadd', permits, unpack(pairs))
end

-- leftOf returns for how many ms a permit lasts that expires then: -1 if it has no end,
-- or one in more than two hundred years.
local function leftOf(expires, now)
  local left = tonumber(expires) - now
  return left > 9e12 and -1 or math.max(left, 0)
end

-- reclaim takes expired permits back and returns the count, which was given, and how
-- many more have expired: of many, later runs take back the rest.
local function reclaim(key, count, permits, now, publish, channel)
  local expired, more = removeOverdue(permits, now)
  if expired == 0 or not count then return count, more end
  count = redis.call('incrby', key, expired)
  offer(publish, channel, count)
  return count, more
end
