-- The record of a request's outcome. A request that arrives twice changes the count once.
--
-- KEYS  3 the record
-- ARGV  3 for how many ms to remember the outcome

-- include: number.lua

local did = redis.call('get', KEYS[3])
if did then return {1, integer(did) or 0} end

-- begin changes nothing: where it is not refused, done is not either.
local function begin() redis.call('set', KEYS[3], '', 'xx') end

-- done records the outcome, and returns it.
local function done(count)
  redis.call('set', KEYS[3], decimal(count), 'px', ARGV[3])
  return {1, count}
end
