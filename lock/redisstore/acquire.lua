-- Grants locks to owners, each if it is free, and nobody is before the owner in line,
-- or if it is the owner's already. What becomes of one is nothing to the others.
--
-- KEYS  of each lock:
--       1 the lock, a hash of owner to holds
--       2 its line
--       3 its fencing counter
-- ARGV  1 the command to publish with
--       2 the life of the fencing counters in ms, 0 for no end
--       and for each lock:
--       1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the owner's member in the line, '' if it does not wait
--       5 how many tokens the owner would like beside the grant's
-- returns  for each lock:
--          {1, token, n}   granted, and the n tokens after it
--          {0, ms, at}     somebody else holds it for so long yet (-1: without an
--                          end); the owner is in line since before the µs at (0: not)
--          {2, ms, 0}      the key is not a lock of this format
--          {3, 0, 0}       the owner wants a further hold but has none
--          or an error
local publish, life = ARGV[1], ARGV[2]

local function refused(left, line, waiter)
  return {0, left, waiter ~= '' and lineUp(line, waiter) or 0}
end

-- busy returns nothing if it is the waiter's turn to have the free lock, and
-- otherwise for how many ms it is not.
local function busy(lock, line, counter, waiter)
  local left = tonumber(redis.call('zscore', line, gap))
  if left then
    left = left - micros()
    if left > 0 then return math.ceil(left / 1000) end
    redis.call('zrem', line, gap)
  end
  return serve(lock, line, counter, publish, life, waiter)
end

-- Most often there are neither the locks nor lines, which one look shows for all of
-- them; but for those that are granted here.
local n = #KEYS / 3
local allVacant, granted = redis.call('exists', unpack(KEYS, 1, 2 * n)) == 0, {}
local function isVacant(lock, line)
  if allVacant and not granted[lock] then return true end
  return n > 1 and redis.call('exists', lock, line) == 0
end

local function acquire(lock, line, counter, ttl, owner, count, waiter, spare)
  local vacant = isVacant(lock, line)
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
    local others = busy(lock, line, counter, waiter)
    if others then return refused(others, line, waiter) end
  end
  local token, reserved = nextToken(counter, left ~= -2, life, spare)
  granted[lock] = true
  redis.call('hset', lock, owner, count)
  redis.call('pexpire', lock, ttl)
  if waiter ~= '' and not vacant then redis.call('zrem', line, waiter) end
  return {1, token, reserved}
end

return each(acquire)
