-- Keeps the places of waiters of ours in the queue of a fair lock, as their own requests
-- would.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 the queue's list, 3 its timeouts, 4 its places
-- ARGV  1 how long the places are kept in ms
--       2 how long Redisson keeps the place of a thread in ms
--       3 and more: the waiters
-- returns  the numbers of those that are to send a request of their own, from 1: each that
--          the queue does not have; the head; and if that is dead, Redisson's while the
--          lock is free, or missing, the first whose place was kept

-- include: deadline.lua
-- include: milliseconds.lua
-- include: number.lua
-- include: fair_queue.lua

local lock, list, timeouts, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, wait, left = milliseconds(), tonumber(table.remove(ARGV, 1)), redis.call('pttl', lock)
local threadWait = tonumber(table.remove(ARGV, 1))

local ask, kept, entries, numbers = {}, {}, {}, {}
local firstKept, expired
local ends, listed = redis.call('zmscore', places, unpack(ARGV)), redis.call('zmscore', timeouts, unpack(ARGV))
for i, waiter in ipairs(ARGV) do
  local by = ends[i] and listed[i] and tonumber(ends[i])
  if by then
    expired = expired or by <= now
    entries[#entries + 1] = decimal(now + wait) .. (by % 1 > 0 and '.5' or '')
    entries[#entries + 1] = waiter
    kept[#kept + 1], numbers[waiter], firstKept = waiter, i, firstKept or i
  else
    ask[#ask + 1] = i
  end
end
if #kept == 0 then return ask end
if expired then spare(places, now, wait) end
redis.call('zadd', places, unpack(entries))
local others = keepTimeouts(list, timeouts, places, now, wait, threadWait, left, kept)
keepQueue(list, timeouts, places, others > 0 and haveTheirs(list, places, now))

local head = redis.call('lindex', list, 0)
local by = head and isOwner(head) and endOf(head, timeouts, places)
local asks = numbers[head] or not (by and by > now and (left ~= -2 or isOurs(head))) and firstKept
if asks then ask[#ask + 1] = asks end
return ask
