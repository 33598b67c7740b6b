local function decimal(n) return string.format('%.0f', n) end

-- micros returns the server's time, which stands still while a script runs.
local instant
local function micros()
  if not instant then
    local now = redis.call('time')
    instant = now[1] * 1000000 + now[2]
  end
  return instant
end

-- nextToken counts a fencing counter up. It comes before the grant: a grant without
-- a token must not be left behind. Microseconds fit a Lua number exactly until the
-- year 2255.
--
-- held   somebody holds the lock already, and keeps the token
-- life   the life of the counter in ms, '0' for no end
-- spare  how many tokens after this one are the owner's as well; nil for none
local function nextToken(counter, held, life, spare)
  spare = tonumber(spare or 0)
  local token = tonumber(redis.call('get', counter))
  if held and token then return token - spare end
  local endless = life == '0' or token and redis.call('pttl', counter) == -1
  token = math.max(micros(), (token or 0) + 1)
  if endless then
    redis.call('set', counter, decimal(token + spare))
  else
    redis.call('set', counter, decimal(token + spare), 'px', life)
  end
  return token
end
