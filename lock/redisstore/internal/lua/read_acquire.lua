-- Grants a read lock to an owner if there is no writer, or the owner is the writer.
--
-- KEYS  1 the lock
--       2 its fencing counter
--       3 the prefix of the keys of the owner's holds
--       4 the claim of a waiting writer
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
--       5 the writer's field under which the owner may read
-- returns  {1, token}  granted
--          {0, ms}     another owner holds it, or claims it, for so many ms
--          {2, ms}     the key is not a lock of this format
--          {3, 0}      the owner wants a further hold but has none

-- include: deadline.lua
-- include: number.lua
-- include: token.lua
-- include: readwrite.lua

local mode = modeOf(KEYS[1])
if mode == 'foreign' then return {2, redis.call('pttl', KEYS[1])} end

local count = tonumber(ARGV[3])
local holds = mode ~= 'free' and holdsOf(KEYS[1], ARGV[2]) or 0
if holds > 0 and lasts(KEYS[1], KEYS[3], holds) == -2 then holds = 0 end
if holds == 0 then
  if count > 1 then return {3, 0} end
  if mode == 'write' then
    if redis.call('hexists', KEYS[1], ARGV[5]) == 0 then return refusal(KEYS[1], redis.call('pttl', KEYS[1])) end
  elseif mode == 'read' and foreign(KEYS[1]) then
    return {2, redis.call('pttl', KEYS[1])}
  else
    local claimed = redis.call('pttl', KEYS[4])
    if claimed >= 0 then return {0, claimed} end
  end
end

local token = nextToken(KEYS[2], mode ~= 'free', ARGV[4])
count = math.max(count, holds) -- a late request does not lower the holds
prolong(KEYS[1], ARGV[1]) -- of a free lock it changes nothing: a user without the rights takes none without an end
if mode == 'free' then redis.call('hset', KEYS[1], 'mode', 'read') end
redis.call('hset', KEYS[1], ARGV[2], decimal(count))
for i = math.max(math.min(holds + 1, count), count - most), count do
  redis.call('set', keyOf(KEYS[3], i), '1', 'px', ARGV[1])
end
if mode == 'free' then redis.call('pexpire', KEYS[1], ARGV[1]) end
return {1, token}
