-- Grants a lock to an owner if it is free or the owner's already.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its fencing counter
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
-- returns  {1, token}  granted
--          {0, ms}     somebody else holds it for so long yet (-1: without an end)
--          {2, ms}     the key is not a lock of this format
--          {3, 0}      the owner wants a further hold but has none
local left = redis.call('pttl', KEYS[1])
if left ~= -2 then
  local holds = redis.pcall('hget', KEYS[1], ARGV[2])
  if type(holds) == 'table' then
    if string.find(holds.err, 'WRONGTYPE', 1, true) then return {2, left} end
    return holds
  elseif not holds and ARGV[3] == '1' then
    return {0, left}
  elseif not holds then
    return {3, 0}
  end
elseif ARGV[3] ~= '1' then
  return {3, 0}
end

-- The token comes before the grant: a grant without one must not be left behind.
-- Microseconds fit a Lua number exactly until the year 2255.
local token = tonumber(redis.call('get', KEYS[2]))
if left == -2 or not token then
  local now = redis.call('time')
  local micros = now[1] * 1000000 + now[2]
  local endless = ARGV[4] == '0' or token and redis.call('pttl', KEYS[2]) == -1
  token = math.max(micros, (token or 0) + 1)
  if endless then
    redis.call('set', KEYS[2], string.format('%.0f', token))
  else
    redis.call('set', KEYS[2], string.format('%.0f', token), 'px', ARGV[4])
  end
end
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
redis.call('pexpire', KEYS[1], ARGV[1])
return {1, token}
