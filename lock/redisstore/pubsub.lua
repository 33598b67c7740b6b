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

-- sendOurs publishes a message for clients of leasewheel, on a channel of its own.
local function sendOurs(publish, channel, message)
  return redis.call(publish == 'publish' and 'publish' or 'spublish', channel, message)
end

-- oursListening returns how many connections listen to a channel of leasewheel's own.
local function oursListening(publish, channel)
  return subscribers(publish == 'publish' and 'numsub' or 'shardnumsub', channel)
end

-- listening returns how many connections listen to a channel, at least.
local function listening(publish, channel)
  if publish == 'publish' then return subscribers('numsub', channel) end
  local count = subscribers('shardnumsub', channel)
  if publish == 'spublish' then return count end
  local plain = subscribers('numsub', channel)
  return publish == 'both' and math.max(count, plain) or count + plain
end

-- othersListening reports whether somebody listens to a channel who does not listen to
-- one of leasewheel's own, as each of its clients does that waits.
local function othersListening(publish, channel, own)
  local ours = oursListening(publish, own)
  if publish == 'publish' then return subscribers('numsub', channel) > ours end
  if subscribers('shardnumsub', channel) > ours then return true end
  return publish ~= 'spublish' and subscribers('numsub', channel) > (publish == 'both' and ours or 0)
end
