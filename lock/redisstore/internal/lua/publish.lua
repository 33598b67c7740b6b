-- How releases are published. A subscriber receives only the kind of pub/sub to which it
-- has subscribed:
--
--   'publish'   by PUBLISH
--   'spublish'  by SPUBLISH, the sharded kind of a cluster
--   'auto'      by SPUBLISH, and by PUBLISH if that has subscribers here
--   'both'      by both
--
-- Leasewheel's own channels have one kind: the sharded one unless the mode is 'publish'.

-- mostConnections is how many files Linux lets a process open, and so its connections.
local mostConnections = 1048576

-- believable returns a number of connections as a server reports it, and 1 for one that no
-- server has: a build of Valkey 9.1.2 reports 744604071 for 8 subscribers, but 0 for none.
local function believable(count)
  count = tonumber(count)
  return count >= 0 and count <= mostConnections and count or 1
end

-- subscribers returns the number of connections to this server on a channel.
local function subscribers(count, channel) return believable(redis.call('pubsub', count, channel)[2]) end

-- send publishes a message for every client, and returns the number of receivers here.
local function send(publish, channel, message)
  local received = 0
  if publish ~= 'publish' then received = redis.call('spublish', channel, message) end
  if publish == 'publish' or publish == 'both' or publish == 'auto' and subscribers('numsub', channel) > 0 then
    received = received + redis.call('publish', channel, message)
  end
  return received
end
