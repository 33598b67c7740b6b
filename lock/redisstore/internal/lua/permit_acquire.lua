-- Takes permits if enough are available.
--
-- KEYS  1 the count
--       2 the permits in use
--       3 the fencing counter
--       4 the channel
-- ARGV  1 the lease in ms
--       2 the first permit's id
--       3 the life of the fencing counter in ms, 0 for no end
--       4 the command to publish with
--       5 how many permits
-- returns  {1, token, permits left, ms}  taken, for so many ms
--          {0, ms, 0, 0}   too few are available; the next one expires in ms (-1: never)
--          {2, ms, 0, 0}   the key is not a count
--          {5, ms, 0, 0}   more permits have expired, which the next run reclaims

-- include: deadline.lua
-- include: milliseconds.lua
-- include: number.lua
-- include: token.lua
-- include: counter.lua
-- include: expiry.lua

local count = countOf(KEYS[1])
if count == false or not isPermits(KEYS[2]) then return {2, redis.call('pttl', KEYS[1]), 0, 0} end

local now = milliseconds()
local more
count, more = reclaim(KEYS[1], count, KEYS[2], now, ARGV[4], KEYS[4])
count = count or 0
-- Of the owner's own permits, some may have expired and been reclaimed.
local several = tonumber(ARGV[5])
local ids = idsOf(ARGV[2], several)
local missing = several - inUse(KEYS[2], ids)
if missing > 0 and count < missing then -- the number may have been lowered, below zero
  if more > 0 then return {5, 1, 0, 0} end
  local next = redis.call('zrange', KEYS[2], 0, 0, 'withscores')[2]
  return {0, next and leftOf(next, now) or -1, 0, 0}
end

local token = nextToken(KEYS[3], false, ARGV[3])
redis.call('zadd', KEYS[2], 'xx', 0, '') -- it changes nothing: a user without the right to it takes none
if missing > 0 then count = redis.call('decrby', KEYS[1], missing) end
put(KEYS[2], ids, decimal(now + tonumber(ARGV[1])))
local lasts = redis.call('pttl', KEYS[1])
-- It is 0 if the number ends during this run.
if lasts >= 0 then redis.call('pexpire', KEYS[2], math.max(lasts, 1)) end
return {1, token, count, lasting(KEYS[2], ARGV[1])}
