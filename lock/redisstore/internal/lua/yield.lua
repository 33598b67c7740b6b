-- The yield state of a mutex, a hash of µs: since when the lock has gone from one
-- leasewheel waiter to the next, until when it is left to peers, and when a peer was last
-- seen.
--
-- Peers poll, redsync every 50 to 250 ms. Leasewheel's waiters are notified of a release
-- at once and would leave nothing to them. So when the lock has gone from one waiter to
-- the next for a while, it is left to peers until each of them has asked. Peers that were
-- not seen for ten minutes get the lock rarely.
--
-- Instants further away than they can be date from before the clock was set, and do not
-- count.

-- include: number.lua
-- include: clock.lua

local yieldInterval, rareYieldInterval, peerMemory = 1000000, 10000000, 600000000

-- age returns how many µs ago a field was recorded; nil if it was not.
local function age(yieldState, field)
  local at = tonumber(redis.call('hget', yieldState, field) or nil)
  local elapsed = at and micros() - at
  return elapsed and elapsed >= 0 and elapsed < peerMemory and elapsed or nil
end

-- yieldRemaining returns for how many more µs a free lock is left to peers, at most longest.
local function yieldRemaining(yieldState, longest)
  local ends = tonumber(redis.call('hget', yieldState, 'until') or nil)
  local open = ends and ends - micros() or 0
  return open > 0 and open <= longest and open or 0
end

-- record sets a field to an instant and drops another. The first write needs no memory.
local function record(yieldState, drop, field, at)
  redis.call('hdel', yieldState, drop)
  redis.call('hset', yieldState, field, decimal(at))
  redis.call('pexpire', yieldState, 600000)
end

-- recordPeer records that a peer holds the lock.
local function recordPeer(yieldState) record(yieldState, 'since', 'peer', micros()) end

-- yieldsToPeers reports whether a lock with waiters of ours is left free for peers instead, for so
-- many µs, and records that: for yieldTime, or for probeTime if none was seen. The window opens at
-- the first release after the interval, however long each owner has held the lock.
local function yieldsToPeers(yieldState, yieldTime, probeTime)
  local streak, seen = age(yieldState, 'since'), age(yieldState, 'peer')
  if not streak then
    record(yieldState, 'until', 'since', micros())
  elseif streak >= (seen and yieldInterval or rareYieldInterval) then
    record(yieldState, 'since', 'until', micros() + (seen and yieldTime or probeTime))
    return true
  end
  return false
end
