-- Finds a key of a lock that has another kind of value. Where the user has no right to a command, it
-- passes over the key.
--
-- KEYS  those of the request that was refused
-- returns  {the key, the kind that it is to have}, {} if there is none

local kinds = {
  redisson_lock_token = 'string', leasewheel_lock_line = 'zset', redisson_lock_queue = 'list',
  redisson_lock_timeout = 'zset', leasewheel_lock_places = 'zset', leasewheel_request = 'string',
}
local probes = {string = {'get'}, list = {'llen'}, zset = {'zscore', ''}}

for i = 2, #KEYS do
  local kind = kinds[string.match(KEYS[i], '^[%l_]*')]
  if kind then
    local reply = redis.pcall(probes[kind][1], KEYS[i], unpack(probes[kind], 2))
    if type(reply) == 'table' and string.find(reply.err, 'WRONGTYPE', 1, true) then return {KEYS[i], kind} end
  end
end
return {}
