-- Lowers an owner's holds of a mutex. Without holds the lock goes to the first of the
-- wait queue, or is free. An owner without holds leaves the wait queue.
-- Or frees any number of mutexes without waiters: a shared run, see shared.go.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its wait queue
--       3 its fencing counter
--       4 its yield state
-- ARGV  1 the command to publish with
--       2 the life of the fencing counter in ms, 0 for no end
--       3 the channel of clients that do not enter the wait queue, Redisson's
--       4 the owner
--       5 the holds it keeps
--       6 the lease in ms, for a lock that is kept
--       7 the owner's member in the wait queue, '' if it did not wait
--       8 '1' if the lock was granted to the owner by another one's release
--         5 to 8 are absent from a simple request: of an owner that keeps no holds, did not
--         wait and was granted the lock by no release
-- returns  1 freed, 0 kept, -1 the owner has no hold

-- include: shared.lua
-- include: publish.lua

local publish, life = ARGV[1], ARGV[2]

-- Most locks have no waiters. This part is for them, see acquire.lua.
local requests = #KEYS / 4
if requests > 1 or not ARGV[5] then
  local function free(i, requests, unwanted, publish)
    local lock, queue, channel, owner = KEYS[i], KEYS[requests + i], ARGV[2 * i + 1], ARGV[2 * i + 2]
    if not unwanted and redis.call('exists', queue) ~= 0 then return 'apart' end
    local held = redis.pcall('hdel', lock, owner) -- deleting the last field deletes the hash
    if held == 0 then return -1 end
    if type(held) == 'table' then
      if not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
      return -1
    end
    send(publish, channel, '0')
    return 1
  end
  local unwanted = redis.call('exists', unpack(KEYS, requests + 1, 2 * requests)) == 0 -- all wait queues
  if requests > 1 then return each(requests, free, requests, unwanted, publish) end
  local reply = free(1, 1, unwanted, publish)
  if reply ~= 'apart' then return reply end
end

-- One request, in every case.
local lock, queue, counter, yieldState = unpack(KEYS)
local _, _, channel, owner, count, ttl, waiter, grantedByRelease = unpack(ARGV)

local holds = redis.pcall((not count or count == '0') and 'hdel' or 'hget', lock, owner)
if type(holds) == 'table' then
  if not string.find(holds.err, 'WRONGTYPE', 1, true) then return holds end
  holds = false
end
if not holds or holds == 0 then
  -- The wait queue may be another program's key, in which the owner has no place.
  if waiter and waiter ~= '' then redis.pcall('zrem', queue, waiter) end
  return -1
end
if count and count ~= '0' then -- hset may need memory, so it must not be the first write
  redis.call('pexpire', lock, ttl)
  redis.call('hset', lock, owner, count)
  return 0
end

-- The lock is free, and the release has succeeded even if the wait queue is broken:
-- subscribers ask.
local head = redis.pcall('zpopmin', queue)
local popped, arrived = head[1], head[2]
if not popped and grantedByRelease ~= '1' then
  send(publish, channel, '0')
  return 1
end

-- The lock has waiters.

-- include: number.lua
-- include: clock.lua
-- include: listeners.lua
-- include: wait_queue.lua
-- include: grant_next.lua
-- include: mutex_yield.lua

-- A free lock is left for a while to clients that do not enter the wait queue, so that
-- they are not starved. Those that subscribe here are counted on the lock's channel: our
-- clients subscribe to ours as well. They get every other grant. For clients that
-- subscribe elsewhere, or poll, the lock is left free now and then.
local sound, left
if popped then sound, left = pcall(yieldsToPeers, yieldState, yieldTime, probeTime) end
local others = grantedByRelease == '1' and othersListening(publish, channel, ourChannel(lock))
if others or popped and sound and left then
  if popped then redis.pcall('zadd', queue, arrived, popped) end -- it keeps its place
  if others then redis.pcall('zadd', queue, decimal(micros() + 1000 * yieldMillis), yieldMember) end
  redis.pcall('pexpire', queue, 600000)
elseif popped then
  local intact, _, granted = pcall(grantNext, lock, queue, counter, publish, life, nil, popped)
  if intact and granted then return 1 end
end
send(publish, channel, '0')
return 1
