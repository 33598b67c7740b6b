-- Frees a lock, whoever holds it, and wakes those who wait for it.
--
-- KEYS  1 the lock, 2 its fencing counter
--       3 the list of a fair lock's waiters, 4 their timeouts, 5 their places
--       6 the line of a mutex
--       7 the channel of a mutex, and with ":<owner>" of a fair lock's waiter
--       8 the channel of a read-write lock
-- ARGV  1 the most holders, and the most waiters, to tell of
--       2 the command to publish with
--       3 the channels of those in line, without the client
-- returns  as describe, before the release
local reply = describe(KEYS, tonumber(ARGV[1]), ARGV[2], ARGV[3])
if reply[1] ~= 'lock' then return reply end
redis.call('unlink', KEYS[1]) -- it may be huge
if reply[3] == 'read' or reply[3] == 'write' then
  sendAll(ARGV[2], KEYS[8])
else
  send(ARGV[2], KEYS[7], '0')
end
-- The next one in a fair lock's queue is told on its own channel. Broken queues are
-- no reason to leave the lock held.
local intact, head, _, more = pcall(first, KEYS[3], KEYS[4], KEYS[5], milliseconds())
if intact then wake(ARGV[2], KEYS[7], KEYS[5], head, more) end
return reply
