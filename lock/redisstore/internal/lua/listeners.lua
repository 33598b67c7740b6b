-- Counts the subscribers of a channel on this server, by the modes of publish.lua.

-- include: publish.lua

-- A client of leasewheel subscribes to its own channel by one kind of pub/sub.

-- sendOurs publishes a message for a leasewheel client, on its own channel.
local function sendOurs(publish, channel, message)
  if send(publish == 'publish' and publish or 'spublish', channel, message) == 0 then redis.call('publish', channel, message) end
end

-- oursListening returns the number of connections on a channel of leasewheel's own.
local function oursListening(publish, channel)
  local sharded = publish ~= 'publish' and subscribers('shardnumsub', channel) or 0
  return sharded > 0 and sharded or subscribers('numsub', channel)
end

-- listening returns a lower bound on the number of connections on a channel.
local function listening(publish, channel)
  local sharded = publish ~= 'publish' and subscribers('shardnumsub', channel) or 0
  if publish == 'spublish' then return sharded end
  local plain = subscribers('numsub', channel)
  return publish == 'both' and math.max(sharded, plain) or sharded + plain
end

-- othersListening reports whether a channel has a subscriber that is not subscribed to
-- leasewheel's own channel, as each of its waiting clients is, of either kind.
local function othersListening(publish, channel, own)
  local sharded, ours = 0, 0
  if publish ~= 'publish' then sharded, ours = subscribers('shardnumsub', channel, own) end
  if sharded > ours or publish == 'spublish' then return sharded > ours end
  local plain, ourPlain = subscribers('numsub', channel, own)
  return plain > ourPlain + (publish == 'both' and ours + ourPlain or 0)
end
