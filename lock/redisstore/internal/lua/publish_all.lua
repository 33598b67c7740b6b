-- include: publish.lua

-- sendAll publishes the release of a read-write lock, which wakes all waiters: readers
-- may go together. On '1' Redisson wakes the threads that are blocked at that moment, and
-- misses a thread between its failed request and blocking. A '0' is kept for such a
-- thread. It is written '00', which Redisson reads as 0 and our waiters ignore.
local function sendAll(publish, channel)
  send(publish, channel, '1')
  send(publish, channel, '00')
end
