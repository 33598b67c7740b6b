-- Reports whether a latch is open.
--
-- KEYS  1 the count
-- returns  {1, 1}  open
--          {0, -1} closed
--          {2, ms} the key is not a count

-- include: counter.lua

local count = countOf(KEYS[1])
if count == false then return {2, redis.call('pttl', KEYS[1])} end
if count and count > 0 then return {0, -1} end
return {1, 1}
