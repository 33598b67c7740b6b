-- A count, in Redisson's format: a string with a whole number.

local function number(n) return string.format('%.0f', n) end

-- countOf returns a count; nil if there is none, false if the key is something else.
local function countOf(key)
  local kind = redis.call('type', key).ok
  if kind == 'none' then return nil end
  local text = kind == 'string' and redis.call('get', key)
  if not text or #text > 15 or not string.find(text, '^%-?%d+$') then return false end
  return tonumber(text)
end

-- offer tells waiters how many permits there are, if there are any. A client of
-- Redisson wakes that many of its waiters.
local function offer(publish, channel, count)
  if count > 0 then redis.call(publish, channel, number(count)) end
end
