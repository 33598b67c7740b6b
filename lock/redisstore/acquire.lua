-- Grants a lock to an owner if it is free, and nobody is before it in line, or if it
-- is the owner's already.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its fencing counter
--       3 its line
--       4 the channels of those in line, without the client
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
--       5 the command to publish with
--       6 the owner's member in the line, '' if it does not wait
-- returns  {1, token, 0}   granted
--          {0, ms, at}     somebody else holds it for so long yet (-1: without an
--                          end); the owner is in line since before the µs at (0: not)
--          {2, ms, 0}      the key is not a lock of this format
--          {3, 0, 0}       the owner wants a further hold but has none
local lock, counter, line = KEYS[1], KEYS[2], KEYS[3]
local first, waiter = ARGV[3] == '1', ARGV[6]

local function refused(left)
  return {0, left, waiter ~= '' and lineUp(line, waiter) or 0}
end

-- turn returns nothing if it is the owner's turn to have the free lock, and otherwise
-- for how many ms it is not.
local function turn()
  if not redis.call('zrange', line, 0, 0)[1] then return end
  local left = tonumber(redis.call('zscore', line, gap))
  if left then
    left = left - micros()
    if left > 0 then return math.ceil(left / 1000) end
    redis.call('zrem', line, gap)
  end
  return serve(lock, counter, line, KEYS[4], ARGV[5], ARGV[4], waiter)
end

local left = redis.call('pttl', lock)
if left ~= -2 then
  local holds = redis.pcall('hget', lock, ARGV[2])
  if type(holds) == 'table' then
    if string.find(holds.err, 'WRONGTYPE', 1, true) then return {2, left, 0} end
    return holds
  elseif not holds and first then
    redis.call('zrem', line, gap) -- whoever it was left to has had the turn
    return refused(left)
  elseif not holds then
    return {3, 0, 0}
  end
elseif not first then
  return {3, 0, 0}
else
  local others = turn()
  if others then return refused(others) end
end

local token = nextToken(counter, left ~= -2, ARGV[4])
redis.call('hset', lock, ARGV[2], ARGV[3])
redis.call('pexpire', lock, ARGV[1])
if waiter ~= '' then redis.call('zrem', line, waiter) end
return {1, token, 0}
