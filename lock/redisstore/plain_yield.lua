-- The turns of a plain lock, a hash of µs: since when the lock has gone from one of
-- leasewheel's waiters to the next, until when it is left to peers, and when a peer was
-- seen last.
--
-- Peers ask now and then, redsync's every 50 to 250 ms, while leasewheel's waiters
-- hear of a release at once and would leave nothing to them. So when the lock has gone
-- from one of them to the next for a while, it is left to the peers for so long that
-- each of them has asked. Peers that were not seen for ten minutes get a turn seldom.
--
-- What is further away than it can be is of before the clock was set, and does not
-- count.
local yieldInterval, rareYieldInterval, yieldTime, peerMemory = 1000000, 10000000, 250000, 600000000

-- past returns for how many µs an instant of the turns is past; nil for none.
local function age(yieldState, field)
  local at = tonumber(redis.call('hget', yieldState, field) or nil)
  local elapsed = at and micros() - at
  return elapsed and elapsed >= 0 and elapsed < peerMemory and elapsed or nil
end

-- openTurn returns for how many µs a free lock is left to peers.
local function yieldRemaining(yieldState)
  local ends = tonumber(redis.call('hget', yieldState, 'until') or nil)
  local open = ends and ends - micros() or 0
  return open > 0 and open <= yieldTime and open or 0
end

-- keep notes an instant. The first write is one that needs no memory.
local function record(yieldState, drop, field, at)
  redis.call('hdel', yieldState, drop)
  redis.call('hset', yieldState, field, decimal(at))
  redis.call('pexpire', yieldState, 600000)
end

-- seePeer notes that a peer holds the lock.
local function recordPeer(yieldState) record(yieldState, 'since', 'peer', micros()) end

-- takeTurn notes that the lock goes to one of leasewheel's waiters, or leaves it to the
-- peers when it is their turn.
local function recordHandOff(yieldState)
  local since = age(yieldState, 'since')
  if not since then
    record(yieldState, 'since', 'since', micros())
  elseif since >= (age(yieldState, 'peer') and yieldInterval or rareYieldInterval) then
    record(yieldState, 'since', 'until', micros() + yieldTime)
  else
    redis.call('pexpire', yieldState, 600000)
  end
end
