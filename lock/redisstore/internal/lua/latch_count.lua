-- Reads or changes the count of a latch.
--
-- KEYS  1 the count
--       2 the channel
--       3 the record of this request's outcome
-- ARGV  1 'read', 'create', 'add' or 'delete'
--       2 by how many
--       3 for how many ms to remember the outcome
--       4 the command to publish with
--       5 the largest count
-- returns  {1, count}  done
--          {0, count}  nothing was changed
--          {2, 0}      the key is not a count

-- include: deadline.lua
-- include: publish.lua
-- include: counter.lua

local op, n = ARGV[1], tonumber(ARGV[2])
local count = countOf(KEYS[1])
if count == false then return {2, 0} end
count = count or 0
if op == 'read' then return {0, math.max(count, 0)} end

-- include: outcome.lua

if op == 'create' then
  if count > 0 then return {0, count} end
  done(n)
  redis.call('set', KEYS[1], ARGV[2])
  send(ARGV[4], KEYS[2], '1')
  return {1, n}
elseif op == 'add' then
  local left = math.max(count + n, 0)
  if count <= 0 or left > tonumber(ARGV[5]) then return {0, math.max(count, 0)} end
  -- A count-down must succeed without memory. A server out of memory refuses set, unless
  -- the script has written before.
  if n < 0 then redis.call('del', KEYS[3]) end
  begin()
  if left > 0 then
    redis.call('incrby', KEYS[1], ARGV[2])
  else
    redis.call('del', KEYS[1])
  end
  local reply = done(left)
  if left == 0 then send(ARGV[4], KEYS[2], '0') end
  return reply
elseif op == 'delete' then
  if count == 0 then return {0, 0} end
  redis.call('del', KEYS[1])
  send(ARGV[4], KEYS[2], '0') -- it wakes Redisson's waiters
  return done(0)
end
