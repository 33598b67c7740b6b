-- Tells about a lock, a semaphore or a latch.
--
-- KEYS  1 the lock, 2 its fencing counter
--       3 the list of a fair lock's waiters, 4 their timeouts, 5 their places
--       6 the line of a mutex
--       7 the permits in use of a semaphore whose permits expire
-- ARGV  1 the most holders, and the most waiters, to tell of
--       2 the command to publish with
--       3 the channels of those in line, without the client
--       4 'semaphore', 'permits' or 'latch', which it is known to be, or ''
--       5 the channel that the waiters for a semaphore, or a latch, listen to
-- returns  as describe; the modes of what has a count are 'semaphore', 'permits' and
--          'latch', and the type of a number that nobody knows is 'string'
local most, publish, as = tonumber(ARGV[1]), ARGV[2], ARGV[4]
local told = describe(KEYS, most, publish, ARGV[3])
local kind = told[1]
if as ~= '' and kind == 'lock' then -- it is known to be something else
  return {'hash', told[2], '', 0, {}, 0, {}, told[8], ''}
elseif as ~= '' and kind == 'none' then
  return {kind, told[2], as, 0, {}, listening(publish, ARGV[5]), {}, told[8], ''}
elseif kind ~= 'string' then
  return told
end

local mode, count, used, permits, left = describeCount(KEYS[1], KEYS[7], as, most)
if not mode then return told end
told[9] = decimal(count)
if mode ~= '' then
  told[1], told[2], told[3], told[4], told[5] = 'lock', left or told[2], mode, used, permits
  told[6], told[7] = listening(publish, ARGV[5]), {}
end
return told
