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

-- nextToken counts a fencing counter up, and returns the token and how many after it
-- are the owner's as well. It comes before the grant: a grant without a token must not
-- be left behind. Microseconds fit a Lua number exactly until the year 2255.
--
-- Those after it run ahead of the clock by a second at most, and by no more than the
-- counter's life: otherwise the clock would make smaller tokens once the counter is
-- gone.
--
-- held   somebody holds the lock already, and keeps the token: of an owner to whom
--        several were given the last, as it may not have heard of any
-- life   the life of the counter in ms, '0' for no end
-- spare  how many tokens after this one the owner would like; nil for none
local function nextToken(counter, held, life, spare)
  local token = tonumber(redis.call('get', counter))
  local endless = life == '0' or token and redis.call('pttl', counter) == -1
  if held and token then
    if not endless then redis.call('pexpire', counter, life) end
    return token, 0
  end
  token = math.max(micros(), (token or 0) + 1)
  local ahead = endless and 1000000 or math.min(1000 * life, 1000000)
  spare = math.max(0, math.min(tonumber(spare or 0), micros() + ahead - token))
  if endless then
    redis.call('set', counter, decimal(token + spare))
  else
    redis.call('set', counter, decimal(token + spare), 'px', life)
  end
  return token, spare
end
