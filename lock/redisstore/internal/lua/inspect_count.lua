-- include: number.lua
-- include: milliseconds.lua
-- include: counter.lua
-- include: expiry.lua

-- inUse describes the permits in use of a semaphore whose permits expire: their number,
-- the first of them, the ms left of the last one (-1: without an end), and the number of
-- expired ones. It returns nothing if the key holds none, or something else: a permit's
-- id is 16 random bytes, while text belongs to another program.
local function inUse(permits, most)
  if redis.call('type', permits).ok ~= 'zset' then return end
  local text = true
  for _, id in ipairs(redis.call('zrange', permits, 0, most - 1)) do
    if #id ~= 16 then return end
    text = text and not string.find(id, '[%c\128-\255]')
  end
  if text then return end

  local now = milliseconds()
  local alive = redis.call('zrangebyscore', permits, '(' .. decimal(now), '+inf', 'withscores', 'limit', 0, most)
  local found = {}
  for i = 1, #alive, 2 do
    if #alive[i] == 16 then
      table.insert(found, alive[i])
      table.insert(found, '1')
      table.insert(found, decimal(leftOf(alive[i + 1], now)))
    end
  end
  local last = redis.call('zrange', permits, -1, -1, 'withscores')[2]
  local expired = redis.call('zcount', permits, '-inf', decimal(now))
  return redis.call('zcard', permits) - expired, found, leftOf(last, now), expired
end

-- describeCount describes a name that has a number, or permits that outlive one which was
-- deleted or evicted.
--
-- lock, permits  the keys of the number, and of the permits in use if they expire
-- as  the known kind: 'semaphore', 'permits' or 'latch', or ''
-- returns  nothing if it is not a number, or not of the known kind; otherwise its mode
--          (as, 'permits' if there are any in use, or '' if it is unknown); its count, nil if
--          there is none; the number of permits in use, the first of them, and the ms left of
--          the last one, nil if there are none
local function describeCount(lock, permits, as, most)
  local count = countOf(lock)
  if count == false or as == 'permits' and not isPermits(permits) then return end
  if as ~= '' and as ~= 'permits' then return as, count, 0, {} end
  local used, found, left, expired = inUse(permits, most)
  if used then return 'permits', count and count + expired, used, found, used > 0 and left or nil end
  return as, count, 0, {}
end
