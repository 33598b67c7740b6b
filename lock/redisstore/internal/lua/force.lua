-- Frees a lock regardless of its holder, and wakes its waiters.
--
-- KEYS  1 the lock, 2 its fencing counter
--       3 the list of a fair lock's waiters, 4 their timeouts, 5 their places
--       6 the wait queue of a mutex
--       7 the channel of a mutex, and with ":<owner>" of a fair lock's waiter
--       8 the channel of a read-write lock
-- ARGV  1 the most holders, and the most waiters, to return
--       2 the command to publish with
--       3 the prefix of the channels of a mutex's waiters
-- returns  as describe, before the release

-- include: deadline.lua
-- include: milliseconds.lua
-- include: publish_all.lua
-- include: inspect_lock.lua
-- include: fair_queue.lua

local reply = describe(KEYS, tonumber(ARGV[1]), ARGV[2], ARGV[3], true)
if reply[1] ~= 'lock' then return reply end
redis.call('unlink', KEYS[1]) -- it may be huge
if reply[3] == 'read' or reply[3] == 'write' then
  sendAll(ARGV[2], KEYS[8])
else
  send(ARGV[2], KEYS[7], '0')
end
-- The head of a fair lock's queue is notified on its own channel. A broken queue does not
-- prevent the release.
local intact, head, _, more = pcall(first, KEYS[3], KEYS[4], KEYS[5], milliseconds())
if intact then wake(ARGV[2], KEYS[7], KEYS[5], head, more) end
return reply
