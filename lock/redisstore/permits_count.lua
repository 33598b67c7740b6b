-- Reads or changes how many permits of a semaphore are available.
--
-- KEYS  1 the count
--       2 the channel
--       3 what was done for this request
--       4 the permits in use, where they expire
-- ARGV  1 'read', 'create', 'add', 'drain' or 'delete'
--       2 by how many
--       3 for how many ms to remember what was done
--       4 the command to publish with
--       5 the largest count
-- returns  {1, count}  done; the count of 'drain' is what it has taken
--          {0, count}  nothing was changed
--          {2, 0}      the key is not a count
local op, n, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[5])
local count = countOf(KEYS[1])
if count == false then return {2, 0} end
if KEYS[4] then
  if not isPermits(KEYS[4]) then return {2, 0} end
  count = reclaim(KEYS[1], count, KEYS[4], milliseconds(), ARGV[4], KEYS[2])
end
if op == 'read' then return {0, count or 0} end

local did = redis.call('get', KEYS[3])
if did then return {1, tonumber(did)} end
local function done(reply)
  redis.call('set', KEYS[3], number(reply), 'px', ARGV[3])
  return {1, reply}
end

if op == 'create' then
  if count then return {0, count} end
  done(n)
  redis.call('set', KEYS[1], ARGV[2])
  offer(ARGV[4], KEYS[2], n)
  return {1, n}
elseif op == 'add' then
  local sum = (count or 0) + n
  if math.abs(sum) > most then return {0, count or 0} end
  done(sum)
  redis.call('incrby', KEYS[1], ARGV[2])
  offer(ARGV[4], KEYS[2], n)
  return {1, sum}
elseif op == 'drain' then
  if not count or count <= 0 then return {0, 0} end
  done(count)
  redis.call('decrby', KEYS[1], number(count))
  return {1, count}
elseif op == 'delete' then
  if not count then return {0, 0} end
  done(0)
  redis.call('del', KEYS[1])
  if KEYS[4] then redis.call('del', KEYS[4]) end
  return {1, 0}
end
