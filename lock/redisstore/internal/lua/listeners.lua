-- Counts the subscribers of a channel on this server, by the modes of publish.lua.

-- include: publish.lua

-- sendOurs publishes a message for leasewheel clients, on a channel of their own.
local function sendOurs(publish, channel, message)
  return redis.call(publish == 'publish' and 'publish' or 'spublish', channel, message)
end

-- oursListening returns the number of connections on a channel of leasewheel's own.
local function oursListening(publish, channel)
  return subscribers(publish == 'publish' and 'numsub' or 'shardnumsub', channel)
end

-- listening returns a lower bound on the number of connections on a channel.
local function listening(publish, channel)
  if publish == 'publish' then return subscribers('numsub', channel) end
  local count = subscribers('shardnumsub', channel)
  if publish == 'spublish' then return count end
  local plain = subscribers('numsub', channel)
  return publish == 'both' and math.max(count, plain) or count + plain
end

-- othersListening reports whether a channel has a subscriber that is not subscribed to
-- leasewheel's own channel, as each of its waiting clients is.
local function othersListening(publish, channel, own)
  local counts = redis.call('pubsub', publish == 'publish' and 'numsub' or 'shardnumsub', channel, own)
  local all, ours = believable(counts[2]), believable(counts[4])
  if all > ours or publish == 'publish' or publish == 'spublish' then return all > ours end
  return subscribers('numsub', channel) > (publish == 'both' and ours or 0)
end
