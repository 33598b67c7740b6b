-- Frees a lock regardless of its holder, and wakes its waiters.
--
-- KEYS  1 the channel of a mutex, and with ":<owner>" of a fair lock's waiter
--       2 the channel of a read-write lock
--       from 3: the keys of a lock, as describe takes them
-- ARGV  1 the most holders, and the most waiters, to return
--       2 the command to publish with
--       3 the prefix of the channels of a mutex's waiters
-- returns  as describe, before the release

-- include: deadline.lua
-- include: milliseconds.lua
-- include: publish_all.lua
-- include: inspect_lock.lua
-- include: fair_queue.lua

local keys = {unpack(KEYS, 3)}
local reply = describe(keys, tonumber(ARGV[1]), ARGV[2], ARGV[3], true)
if reply[1] ~= 'lock' then return reply end
redis.call('unlink', keys[1]) -- it may be huge
if reply[3] == 'read' or reply[3] == 'write' then
  sendAll(ARGV[2], KEYS[2])
else
  send(ARGV[2], KEYS[1], '0')
end
-- The head of a fair lock's queue is notified on its own channel. A broken queue does not
-- prevent the release.
local intact, head, _, more = pcall(first, keys[3], keys[4], keys[5], milliseconds())
if intact then wake(ARGV[2], KEYS[1], keys[5], head, more) end
return reply
