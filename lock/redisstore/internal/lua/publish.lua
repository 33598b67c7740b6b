-- How releases are published. A subscriber receives only the kind of pub/sub to which it
-- has subscribed:
--
--   'publish'   by PUBLISH
--   'spublish'  by SPUBLISH, the sharded kind of a cluster
--   'auto'      by SPUBLISH, and by PUBLISH if that has subscribers here
--   'both'      by both
--
-- A server that has no sharded kind, as before Redis 7, or refuses it publishes by PUBLISH in every
-- mode, and has no sharded subscribers: while a cluster is upgraded, it has both kinds of servers.

-- mostConnections is how many files Linux lets a process open, and so its connections.
local mostConnections = 1048576

-- believable returns a number of connections as a server reports it, and 1 for one that no
-- server has: a build of Valkey 9.1.2 reports 744604071 for 8 subscribers, but 0 for none.
local function believable(count)
  count = tonumber(count)
  return count >= 0 and count <= mostConnections and count or 1
end

-- subscribers returns the numbers of connections to this server on one or two channels.
local function subscribers(count, channel, second)
  local counts = redis.pcall('pubsub', count, channel, second or channel)
  if not counts.err then return believable(counts[2]), believable(counts[4]) end
  return 0, 0
end

-- send publishes a message for every client, and returns the number of receivers here.
local function send(publish, channel, message)
  local received = 0
  if publish ~= 'publish' then
    received = redis.pcall('spublish', channel, message)
    if type(received) == 'table' then received, publish = 0, 'publish' end
  end
  if publish == 'publish' or publish == 'both' or publish == 'auto' and subscribers('numsub', channel) > 0 then
    received = received + redis.call('publish', channel, message)
  end
  return received
end
