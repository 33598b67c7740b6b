-- Prolongs many leases. A lease that cannot be prolonged does not affect others.
--
-- KEYS  the locks, each a hash of owner to holds, and fencing counters, see eachHeld
-- ARGV  see eachHeld
-- returns  for each lock: 1 prolonged, 0 no such lock, -1 the key is another
--          owner's or no lock, or the text of an error

-- include: deadline.lua
-- include: fence_life.lua

local call, pcall = redis.call, redis.pcall
return eachHeld(function(lock, lease, owner)
  local held = pcall('hexists', lock, owner)
  if held == 1 then return call('pexpire', lock, lease) end
  if held ~= 0 then return string.find(held.err, 'WRONGTYPE', 1, true) and -1 or held.err end
  return call('exists', lock) == 1 and -1 or 0
end)
