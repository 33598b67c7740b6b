-- Lowers an owner's holds of a plain lock; without holds the lock is free.
--
-- Peers ask now and then, redsync's every 50 to 250 ms, while leasewheel's waiters
-- hear of a release at once and would leave nothing to them. So when the lock has gone
-- from one of them to the next for a while, it is left to the peers for so long that
-- each of them has asked. Peers that were not seen for ten minutes get a turn seldom.
--
-- KEYS  1 the lock, a string: its owner
--       2 its channel
--       3 whose turn it is, a hash of µs: since when the lock has gone from one of
--         leasewheel's waiters to the next, until when it is left to peers, and when
--         a peer was seen last
-- ARGV  1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
-- returns  1 freed, 0 kept, -1 the owner has no hold
local lock, channel, turns = KEYS[1], KEYS[2], KEYS[3]
local often, seldom, pause, memory = 1000000, 10000000, 250000, 600000000

local held = redis.pcall('get', lock)
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
if held ~= ARGV[1] then return -1 end
if ARGV[2] ~= '0' then
  redis.call('pexpire', lock, ARGV[3])
  return 0
end
redis.call('del', lock)

if redis.call(ARGV[4], channel, '0') == 0 then -- nobody waits, so peers are not kept out
  redis.call('hdel', turns, 'since')
  return 1
end
local clock = redis.call('time')
local now = clock[1] * 1000000 + clock[2]
local since = tonumber(redis.call('hget', turns, 'since'))
local peer = tonumber(redis.call('hget', turns, 'peer'))
if not since then
  redis.call('hset', turns, 'since', string.format('%.0f', now))
elseif now - since >= (peer and now - peer < memory and often or seldom) then
  redis.call('hdel', turns, 'since')
  redis.call('hset', turns, 'until', string.format('%.0f', now + pause))
end
redis.call('pexpire', turns, 600000)
return 1
