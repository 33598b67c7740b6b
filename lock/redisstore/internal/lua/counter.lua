-- A count in Redisson's format: a string with a whole number.

-- include: number.lua
-- include: publish.lua

-- countOf returns a count; nil if there is none, false if the key is something else.
local function countOf(key)
  local kind = redis.call('type', key).ok
  if kind == 'none' then return nil end
  return kind == 'string' and integer(redis.call('getrange', key, 0, 16)) or false
end

-- announcePermits publishes how many permits there are, if there are any. A client of
-- Redisson wakes that many of its waiters.
local function announcePermits(publish, channel, count)
  if count > 0 then send(publish, channel, decimal(count)) end
end
