-- Reads or changes how many permits of a semaphore are available.
--
-- KEYS  1 the count
--       2 the channel
--       3 the record of this request's outcome
--       4 the permits in use, if they expire
-- ARGV  1 'read', 'create', 'add', 'drain', 'delete', or 'set' if permits expire
--       2 by how many
--       3 for how many ms to remember the outcome
--       4 the command to publish with
--       5 the largest count
--       6 the life of a created count in ms, 0 for no end
-- returns  {1, count}  done; 'drain' returns the count that it took
--          {0, count}  nothing was changed
--          {2, 0}      the key is not a count

-- include: deadline.lua
-- include: milliseconds.lua
-- include: number.lua
-- include: counter.lua
-- include: expiry.lua

local op, n, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local count = countOf(KEYS[1])
if count == false then return {2, 0} end
local expired = 0
if KEYS[4] then
  if not isPermits(KEYS[4]) then return {2, 0} end
  count, expired = reclaim(KEYS[1], count, KEYS[4], milliseconds(), ARGV[4], KEYS[2])
  count = count and count + expired -- the next runs reclaim those
end
if op == 'read' then return {0, count or 0} end
-- Permits with an end are those of a number that has ended just now: their keys expire apart.
if KEYS[4] and not count and redis.call('pttl', KEYS[4]) >= 0 then redis.call('unlink', KEYS[4]) end

-- include: outcome.lua

if op == 'create' then
  if count then return {0, count} end
  -- Permits outlive a count that was deleted or evicted.
  local available = n - (KEYS[4] and redis.call('zcount', KEYS[4], '-inf', '+inf') or 0)
  done(n)
  if ARGV[6] == '0' then
    redis.call('set', KEYS[1], decimal(available))
  else -- no pexpire: without the right to it the count would have no end
    redis.call('set', KEYS[1], decimal(available), 'px', ARGV[6])
  end
  if available > 0 then announcePermits(ARGV[4], KEYS[2], available) end
  return {1, n}
elseif op == 'set' then
  local more = n - (count and count - expired or 0) - redis.call('zcount', KEYS[4], '-inf', '+inf')
  begin()
  local available = redis.call('incrby', KEYS[1], decimal(more))
  done(n)
  if more > 0 then announcePermits(ARGV[4], KEYS[2], available) end
  return {1, n}
elseif op == 'add' then
  local sum = (count or 0) + n
  if math.abs(sum) > most then return {0, count or 0} end
  begin()
  redis.call('incrby', KEYS[1], ARGV[2])
  done(sum)
  announcePermits(ARGV[4], KEYS[2], n)
  return {1, sum}
elseif op == 'drain' then
  if not count or count <= 0 then return {0, 0} end
  begin()
  redis.call('decrby', KEYS[1], decimal(count))
  return done(count)
elseif op == 'delete' then
  if not count then return {0, 0} end
  -- A server out of memory refuses set, unless the script has written before.
  redis.call('del', KEYS[1])
  if KEYS[4] then redis.call('unlink', KEYS[4]) end -- it may be huge
  return done(0)
end
