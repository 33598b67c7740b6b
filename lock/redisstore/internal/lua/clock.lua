local instant -- of the first reading: the clock stands still while a script runs

-- micros returns the server's time in µs since 1970. It fits a Lua number exactly until the
-- year 2255.
local function micros()
  if not instant then
    local now = redis.call('time')
    instant = now[1] * 1000000 + now[2]
  end
  return instant
end
