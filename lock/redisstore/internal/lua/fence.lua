-- Raises the fencing counter of a lock at its owner's request, so that the next grant has
-- a larger token. The counter keeps its life, or stays without an end.
--
-- KEYS  1 the lock, a hash of owner to holds or a plain lock's owner
--       2 its fencing counter
-- ARGV  1 the owner
--       2 the token
--       3 the life of the fencing counter in ms, 0 for no end
-- returns  1 the counter is at the token or beyond, 0 the owner has no hold

-- include: deadline.lua
-- include: number.lua
-- include: token.lua

local holds = redis.pcall('hget', KEYS[1], ARGV[1])
if type(holds) == 'table' then
  if not string.find(holds.err, 'WRONGTYPE', 1, true) then return holds end
  holds = redis.pcall('get', KEYS[1]) == ARGV[1]
end
if not holds then
  return 0
end
local text = redis.call('get', KEYS[2])
local token = text and lastToken(KEYS[2], text)
if token and token >= tonumber(ARGV[2]) then return 1 end
local raised = decimal(math.ceil(tonumber(ARGV[2]) / 16) * 16) -- see token.lua
-- A counter that is no multiple of 16 was counted up by Redisson, and never expires.
if ARGV[3] == '0' or token and (token % 16 ~= 0 or redis.call('pttl', KEYS[2]) == -1) then
  redis.call('set', KEYS[2], raised)
else
  redis.call('set', KEYS[2], raised, 'px', ARGV[3])
end
return 1
