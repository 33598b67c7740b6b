-- Lowers owners' holds of locks; without holds a lock goes to the first in line, or is
-- free. An owner without holds leaves the line. What becomes of one lock is nothing
-- to the others.
--
-- KEYS  of each lock:
--       1 the lock, a hash of owner to holds
--       2 its line
--       3 its fencing counter
-- ARGV  1 the command to publish with
--       2 the life of the fencing counters in ms, 0 for no end
--       and for each lock:
--       1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the owner's member in the line, '' if it did not wait
--       5 '1' if the lock was granted to the owner by another one's release
-- returns  for each lock: 1 freed, 0 kept, -1 the owner has no hold, or an error
local publish, life = ARGV[1], ARGV[2]

-- yields is for how many ms a free lock is left to clients that do not line up, so
-- that they are not starved by those who do. They are heard of by their listening to
-- the lock's channel; whoever else listens to it listens to ours as well. They get
-- every other turn.
local yields = 10
local function foreigners(lock, channel)
  return listeners(publish, channel) > listeners(publish, ourChannel(lock))
end

-- noLines says that nobody is in line for any of the locks, which one look shows for
-- all of them. A single lock's line needs no look: serve finds it empty as fast.
local n = #KEYS / 3
local empty
local function noLines()
  if empty == nil then
    empty = n > 1 and redis.call('exists', unpack(KEYS, n + 1, 2 * n)) == 0
  end
  return empty
end

local function release(lock, line, counter, owner, count, ttl, waiter, handed)
  -- With the last field goes the hash.
  local holds = redis.pcall(count == '0' and 'hdel' or 'hget', lock, owner)
  if type(holds) == 'table' then
    if not string.find(holds.err, 'WRONGTYPE', 1, true) then return holds end
    holds = false
  end
  if not holds or holds == 0 then
    if waiter ~= '' then redis.call('zrem', line, waiter) end
    return -1
  end
  if count ~= '0' then
    redis.call('hset', lock, owner, count)
    redis.call('pexpire', lock, ttl)
    return 0
  end

  local channel = channelOf('redisson_lock__channel', lock)
  if handed == '1' and foreigners(lock, channel) then
    redis.call('zadd', line, decimal(micros() + 1000 * yields), gap)
    redis.call('pexpire', line, 600000)
    empty = false
  elseif not noLines() and serve(lock, line, counter, publish, life) then
    return 1
  end
  redis.call(publish, channel, '0')
  return 1
end

return each(release)
