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
local often, seldom, pause, memory = 1000000, 10000000, 250000, 600000000

-- past returns for how many µs an instant of the turns is past; nil for none.
local function past(turns, field)
  local at = tonumber(redis.call('hget', turns, field) or nil)
  local age = at and micros() - at
  return age and age >= 0 and age < memory and age or nil
end

-- openTurn returns for how many µs a free lock is left to peers.
local function openTurn(turns)
  local ends = tonumber(redis.call('hget', turns, 'until') or nil)
  local open = ends and ends - micros() or 0
  return open > 0 and open <= pause and open or 0
end

-- keep notes an instant. The first write is one that needs no memory.
local function keep(turns, drop, field, at)
  redis.call('hdel', turns, drop)
  redis.call('hset', turns, field, decimal(at))
  redis.call('pexpire', turns, 600000)
end

-- seePeer notes that a peer holds the lock.
local function seePeer(turns) keep(turns, 'since', 'peer', micros()) end

-- takeTurn notes that the lock goes to one of leasewheel's waiters, or leaves it to the
-- peers when it is their turn.
local function takeTurn(turns)
  local since = past(turns, 'since')
  if not since then
    keep(turns, 'since', 'since', micros())
  elseif since >= (past(turns, 'peer') and often or seldom) then
    keep(turns, 'since', 'until', micros() + pause)
  else
    redis.call('pexpire', turns, 600000)
  end
end
