-- Who listens to a channel on this server, by the kinds of pub/sub that publish.lua tells
-- of.

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
