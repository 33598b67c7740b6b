-- Lowers an owner's holds of a lock; without holds the lock goes to the first in
-- line, or is free. An owner without holds leaves the line.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its channel
--       3 its fencing counter
--       4 its line
--       5 the channel that leasewheel's clients listen to, and with ":<client>" one
--         of them
-- ARGV  1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
--       5 the life of the fencing counter in ms, 0 for no end
--       6 the owner's member in the line, '' if it did not wait
--       7 '1' if the lock was granted to the owner by another one's release
-- returns  1 freed, 0 kept, -1 the owner has no hold
local lock, channel, line, ours, publish = KEYS[1], KEYS[2], KEYS[4], KEYS[5], ARGV[4]

-- yields is for how many ms a free lock is left to clients that do not line up, so
-- that they are not starved by those who do. They are heard of by their listening to
-- the lock's channel; whoever else listens to it listens to ours as well. They get
-- every other turn.
local yields = 10
local function foreigners()
  return ARGV[7] == '1' and listeners(publish, channel) > listeners(publish, ours)
end

local holds = redis.pcall('hget', lock, ARGV[1])
if type(holds) == 'table' then
  if not string.find(holds.err, 'WRONGTYPE', 1, true) then return holds end
  holds = false
end
if not holds then
  if ARGV[6] ~= '' then redis.call('zrem', line, ARGV[6]) end
  return -1
end
if ARGV[2] ~= '0' then
  redis.call('hset', lock, ARGV[1], ARGV[2])
  redis.call('pexpire', lock, ARGV[3])
  return 0
end

redis.call('hdel', lock, ARGV[1])
if foreigners() then
  redis.call('zadd', line, decimal(micros() + 1000 * yields), gap)
  redis.call('pexpire', line, 600000)
elseif serve(lock, KEYS[3], line, ours, publish, ARGV[5]) then
  return 1
end
redis.call(publish, channel, '0')
return 1
