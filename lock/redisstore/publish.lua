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
