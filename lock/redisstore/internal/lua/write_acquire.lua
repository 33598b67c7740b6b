-- Grants a write lock to an owner if there are no readers and no writer, or if the owner
-- holds it already.
--
-- KEYS  1 the lock
--       2 its fencing counter
--       3 the claim of a waiting writer
--       4 the channel, which is no key, see readwrite.go
-- ARGV  1 the lease in ms
--       2 the owner's field
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
--       5 for how many ms to keep new readers out if there are readers, 0 for none
-- returns  {1, token}  granted
--          {0, ms}     another owner holds it (ms left, -1: without an end; of several
--                      readers, those of the one that ends first)
--          {2, ms}     the key is not a lock of this format
--          {3, 0}      the owner wants a further hold but has none
--          {5, ms}     a living one may be behind more dead readers, which the next run drops

-- include: deadline.lua
-- include: number.lua
-- include: token.lua
-- include: readwrite.lua

local mode = modeOf(KEYS[1])
if mode == 'foreign' then return {2, redis.call('pttl', KEYS[1])} end

local count = tonumber(ARGV[3])
local holds = mode == 'write' and holdsOf(KEYS[1], ARGV[2]) or 0
if holds == 0 then
  if count > 1 then return {3, 0} end
  if mode == 'write' then return refusal(KEYS[1], redis.call('pttl', KEYS[1])) end
  if mode == 'read' and foreign(KEYS[1]) then return {2, redis.call('pttl', KEYS[1])} end
  if mode == 'read' then
    local left, soonest, unknown = settle(KEYS[1])
    if left then
      if ARGV[5] ~= '0' then redis.call('set', KEYS[3], ARGV[2], 'px', ARGV[5]) end
      return {unknown and 5 or 0, soonest}
    end
  end
end

local token = nextToken(KEYS[2], holds > 0, ARGV[4])
if holds == 0 then redis.call('unlink', KEYS[1], KEYS[3]) end
prolong(KEYS[1], ARGV[1]) -- of a free lock it changes nothing: a user without the rights takes none without an end
redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], decimal(math.max(count, holds)))
if holds == 0 then redis.call('pexpire', KEYS[1], ARGV[1]) end
return {1, token}
