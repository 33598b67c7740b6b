-- Grants locks to owners, each if it is free, and nobody is before the owner in line,
-- or if it is the owner's already. What becomes of one is nothing to the others.
--
-- KEYS  for each lock:
--       1 the lock, a hash of owner to holds
--       2 its fencing counter
--       3 its line
--       4 the channels of those in line, without the client
-- ARGV  for each lock:
--       1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
--       5 the command to publish with
--       6 the owner's member in the line, '' if it does not wait
--       7 how many tokens the owner would like beside the grant's
-- returns  for each lock:
--          {1, token, n}   granted, and the n tokens after it
--          {0, ms, at}     somebody else holds it for so long yet (-1: without an
--                          end); the owner is in line since before the µs at (0: not)
--          {2, ms, 0}      the key is not a lock of this format
--          {3, 0, 0}       the owner wants a further hold but has none
--          or an error
local function refused(left, line, waiter)
  return {0, left, waiter ~= '' and lineUp(line, waiter) or 0}
end

-- busy returns nothing if it is the waiter's turn to have the free lock, and
-- otherwise for how many ms it is not.
local function busy(lock, counter, line, channel, publish, life, waiter)
  local left = tonumber(redis.call('zscore', line, gap))
  if left then
    left = left - micros()
    if left > 0 then return math.ceil(left / 1000) end
    redis.call('zrem', line, gap)
  end
  return serve(lock, counter, line, channel, publish, life, waiter)
end

local function acquire(lock, counter, line, channel, ttl, owner, count, life, publish, waiter, spare)
  -- Most often there is neither the lock nor a line.
  local vacant = redis.call('exists', lock, line) == 0
  local left = vacant and -2 or redis.call('pttl', lock)
  if left ~= -2 then
    local holds = redis.pcall('hget', lock, owner)
    if type(holds) == 'table' then
      if string.find(holds.err, 'WRONGTYPE', 1, true) then return {2, left, 0} end
      return holds
    elseif not holds and count == '1' then
      redis.call('zrem', line, gap) -- whoever it was left to has had the turn
      return refused(left, line, waiter)
    elseif not holds then
      return {3, 0, 0}
    end
  elseif count ~= '1' then
    return {3, 0, 0}
  elseif not vacant then
    local others = busy(lock, counter, line, channel, publish, life, waiter)
    if others then return refused(others, line, waiter) end
  end
  local token, reserved = nextToken(counter, left ~= -2, life, spare)
  redis.call('hset', lock, owner, count)
  redis.call('pexpire', lock, ttl)
  if waiter ~= '' then redis.call('zrem', line, waiter) end
  return {1, token, reserved}
end

return each(4, 7, acquire)
