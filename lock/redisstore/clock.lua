-- decimal writes an integer in full: Lua's own way turns large ones into 1.7e+15.
local function decimal(n) return string.format('%.0f', n) end

-- micros returns the server's time in µs since 1970, which stands still while a script
-- runs, as a number and in decimal. It fits a Lua number exactly until the year 2255.
local instant, written
local function micros()
  if not instant then
    local now = redis.call('time')
    written = now[1] .. string.sub('00000' .. now[2], -6)
    instant = tonumber(written)
  end
  return instant, written
end
