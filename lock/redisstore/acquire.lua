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

local token = nextToken(KEYS[2], left ~= -2, ARGV[4])
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
redis.call('pexpire', KEYS[1], ARGV[1])
return {1, token}
