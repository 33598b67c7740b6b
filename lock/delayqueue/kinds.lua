-- Finds a key of another kind, with commands for which all users of queues have the right.
--
-- KEYS  those of the queue, without the channel
-- returns  the number of the first one, 0 if there is none

for i, command in ipairs({'zcard', 'zcard', 'zcard', 'hlen', 'hlen', 'get'}) do
  local reply = redis.pcall(command, KEYS[i])
  if type(reply) == 'table' and reply.err then return i end
end
return 0
