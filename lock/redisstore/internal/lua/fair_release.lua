-- Lowers an owner's holds of a fair lock; without holds the lock is free. Also ends the
-- owner's place in the queue, and wakes the head if the lock is free.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 the queue's list, 3 its timeouts, 4 its places
--       5 the prefix of its waiters' channels
-- ARGV  1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
-- returns  1 freed, 0 kept, -1 the owner has no hold

-- include: milliseconds.lua
-- include: listeners.lua
-- include: fair_queue.lua

local lock, list, timeouts, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner = ARGV[1]

local holds = redis.pcall('hget', lock, owner)
if type(holds) == 'table' then
  if not string.find(holds.err, 'WRONGTYPE', 1, true) then return holds end
  holds = false
end
if ARGV[2] ~= '0' then
  if not holds then return -1 end
  -- A server out of memory refuses hset, unless the script has written before.
  redis.call('pexpire', lock, ARGV[3])
  redis.call('hset', lock, owner, ARGV[2])
  return 0
end

local now = milliseconds()
local function leaveQueue()
  redis.call('zrem', places, owner)
  leave(list, timeouts, owner)
end
local function wakeHead()
  -- A waiter that was subscribed at its last request, and is no longer, has ended.
  local function unsubscribed(waiter, by)
    if by % 1 == 0 then return false end
    local ok, connections = pcall(oursListening, ARGV[4], KEYS[5] .. ':' .. waiter)
    return ok and connections == 0
  end
  local head, _, more = first(list, timeouts, places, now, nil, unsubscribed)
  wake(ARGV[4], KEYS[5], places, head, more)
end

-- A broken queue, as one of which another client has replaced a key, does not prevent the release.
if holds then
  pcall(leaveQueue)
  redis.call('hdel', lock, owner)
else
  leaveQueue()
end
if redis.call('exists', lock) == 0 then pcall(wakeHead) end
pcall(leaveToTheirs, list, timeouts, places, now)
return holds and 1 or -1
