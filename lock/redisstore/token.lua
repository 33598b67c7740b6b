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
  local left = redis.call('pttl', counter)
  local endless = life == '0' or left == -1
  if held and left ~= -2 then
    if not endless then redis.call('pexpire', counter, life) end
    return tonumber(redis.call('get', counter)), 0
  end
  -- put sets the counter and returns what it was.
  local function put(value)
    if endless then return redis.call('set', counter, value, 'get') end
    return redis.call('set', counter, value, 'px', life, 'get')
  end
  local token, digits = micros()
  local latest = token + (endless and 1000000 or math.min(1000 * life, 1000000))
  spare = tonumber(spare or 0)
  local reserved = math.min(spare, latest - token)
  local last = tonumber(put(reserved == 0 and digits or decimal(token + reserved)) or 0) or 0
  if last >= token then
    token = last + 1
    reserved = math.max(0, math.min(spare, latest - token))
    put(decimal(token + reserved))
  end
  return token, reserved
end
