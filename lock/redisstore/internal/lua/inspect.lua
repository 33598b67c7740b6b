-- Describes a lock, a semaphore or a latch.
--
-- KEYS  1 the permits in use of a semaphore whose permits expire
--       from 2: the keys of a lock, as describe takes them
-- ARGV  1 the most holders, and the most waiters, to return
--       2 the command to publish with
--       3 the prefix of the channels of a mutex's waiters
--       4 the known kind: 'semaphore', 'permits' or 'latch', or ''
--       5 the channel of a semaphore's, or latch's, waiters
--       6 '1' if the caller asked for the lock by name, '0' in a list
-- returns  as describe; the modes of what has a count are 'semaphore', 'permits' and
--          'latch', and the type of a number of unknown kind is 'string'

-- include: number.lua
-- include: listeners.lua
-- include: inspect_lock.lua
-- include: inspect_count.lua

local most, publish, as = tonumber(ARGV[1]), ARGV[2], ARGV[4]
local reply = describe({unpack(KEYS, 2)}, most, publish, ARGV[3], ARGV[6] == '1')
local kind = reply[1]
if as ~= '' and kind == 'lock' then -- the key is not of the known kind
  return {'hash', reply[2], '', 0, {}, 0, {}, reply[8], ''}
elseif kind ~= 'string' and kind ~= 'none' then
  return reply
end

local mode, count, used, permits, left = describeCount(KEYS[2], KEYS[1], as, most)
if kind == 'none' and (used or 0) == 0 then
  return as == '' and reply or {kind, reply[2], as, 0, {}, listening(publish, ARGV[5]), {}, reply[8], ''}
end
if not mode then return reply end
reply[9] = count and decimal(count) or ''
if mode ~= '' then
  reply[1], reply[2], reply[3], reply[4], reply[5] = 'lock', left or reply[2], mode, used, permits
  reply[6], reply[7] = listening(publish, ARGV[5]), {}
end
return reply
