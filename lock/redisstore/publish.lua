-- How releases are published. A subscriber receives only the kind that it has subscribed
-- to:
--
--   'publish'   by PUBLISH
--   'spublish'  by SPUBLISH, the sharded kind of a cluster
--   'auto'      by SPUBLISH, and by PUBLISH where somebody listens for that here
--   'both'      by both
--
-- The channels of leasewheel's own have one kind: the sharded one unless it is 'publish'.

-- subscribers returns how many connections to this server listen to a channel.
local function subscribers(count, channel) return tonumber(redis.call('pubsub', count, channel)[2]) end

-- send publishes a message for every client, and returns how many have received it here.
local function send(publish, channel, message)
  local received = 0
  if publish ~= 'publish' then received = redis.call('spublish', channel, message) end
  if publish == 'publish' or publish == 'both' or publish == 'auto' and subscribers('numsub', channel) > 0 then
    received = received + redis.call('publish', channel, message)
  end
  return received
end

-- sendAll publishes the release of a read-write lock that wakes all who wait: readers may
-- go together. Redisson takes '1' as one for the threads that are blocked just then, so one
-- that has asked in vain and is about to block misses it. A '0' waits for such a thread.
-- It is written '00', which is 0 to Redisson, and which our own waiters leave alone.
local function sendAll(publish, channel)
  send(publish, channel, '1')
  send(publish, channel, '00')
end
