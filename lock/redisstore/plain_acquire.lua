-- Grants a plain lock to an owner if it is free, and not left to others, or if it is
-- the owner's already.
--
-- KEYS  1 the lock, a string: its owner
--       2 its fencing counter
--       3 whose turn it is, a hash: see plain_release
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
-- returns  {1, token}  granted
--          {0, ms}     one of leasewheel's owners holds it for so long yet (-1: without
--                      an end), or for so long it is left to its peers
--          {2, ms}     the key is not a string
--          {3, 0}      the owner wants a further hold but has none
--          {5, ms}     a peer holds it, which will not tell of its release
local lock, counter, turns = KEYS[1], KEYS[2], KEYS[3]
local owner, first = ARGV[2], ARGV[3] == '1'

local held = redis.pcall('get', lock)
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then return {2, redis.call('pttl', lock)} end
  return held
elseif held == owner then
  local token = nextToken(counter, true, ARGV[4])
  redis.call('pexpire', lock, ARGV[1])
  return {1, token}
elseif not first then
  return {3, 0}
elseif held then
  local left = redis.call('pttl', lock)
  if string.find(held, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$') then return {0, left} end
  redis.call('hset', turns, 'peer', decimal(micros()))
  redis.call('hdel', turns, 'since')
  redis.call('pexpire', turns, 600000)
  return {5, left}
end

local left = (tonumber(redis.call('hget', turns, 'until')) or 0) - micros()
if left > 0 then return {0, math.ceil(left / 1000)} end
local token = nextToken(counter, false, ARGV[4])
redis.call('set', lock, owner, 'px', ARGV[1])
return {1, token}
