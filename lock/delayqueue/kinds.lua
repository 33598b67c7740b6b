-- Finds a key of another kind. Where the user has no right to a command, it passes over the key.
--
-- KEYS  those of the queue, without the channel
-- returns  the number of the first one, 0 if there is none

for i, command in ipairs({'zcard', 'zcard', 'zcard', 'hlen', 'hlen', 'get'}) do
  local reply = redis.pcall(command, KEYS[i])
  if type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true) then return i end
end
return 0
