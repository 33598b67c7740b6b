-- Permits that expire, in Redisson's format:
--
--   count    how many are available
--   permits  zset of the ids in use, each with the ms (Unix time) at which it expires,
--            922337203685477 for never

-- include: counter.lua
-- include: overdue.lua

-- isPermits reports whether a key may hold permits in use.
local function isPermits(key)
  local kind = redis.call('type', key).ok
  return kind == 'zset' or kind == 'none'
end

-- idsOf returns the ids of the permits of one lease, at most a hundred: the first id, and
-- those whose last four bytes, as a number, are larger by 1, 2 and so on.
local function idsOf(first, several)
  local ids = {first}
  for i = 1, several - 1 do
    local id, number = '', i
    for at = 16, 13, -1 do
      number = number + string.byte(first, at)
      id = string.char(number % 256) .. id
      number = math.floor(number / 256)
    end
    ids[i + 1] = string.sub(first, 1, 12) .. id
  end
  return ids
end

-- inUse returns how many of a lease's permits are in use, and the ms at which the first expires.
local function inUse(permits, ids)
  local used, expires = 0, nil
  for i, id in ipairs(ids) do
    local at = redis.call('zscore', permits, id)
    if at then used = used + 1 end
    if i == 1 then expires = at end
  end
  return used, expires
end

-- lasting returns the ms for which a lease of permits is kept: at most until the end of
-- the semaphore, if that has one.
local function lasting(permits, lease)
  local left = redis.call('pttl', permits)
  return left >= 0 and math.min(left, tonumber(lease)) or tonumber(lease)
end

-- put adds or prolongs permits in use.
local function put(permits, ids, expires)
  local pairs = {}
  for i, id in ipairs(ids) do
    pairs[2 * i - 1], pairs[2 * i] = expires, id
  end
  redis.call('zadd', permits, unpack(pairs))
end

-- leftOf returns the ms left of a permit: -1 if it never expires, or in more than two
-- hundred years.
local function leftOf(expires, now)
  local left = tonumber(expires) - now
  return left > 9e12 and -1 or math.max(left, 0)
end

-- reclaim makes expired permits available again. It returns the new count, and how many
-- expired permits are left: later runs reclaim the rest of many.
local function reclaim(key, count, permits, now, publish, channel)
  local expired, more = removeOverdue(permits, now, function(expired)
    if count then count = redis.call('incrby', key, expired) end
  end)
  if count and expired > 0 then announcePermits(publish, channel, count) end
  return count, more
end
