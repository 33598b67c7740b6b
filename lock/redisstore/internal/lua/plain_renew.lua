-- Prolongs many leases of plain locks. A lease that cannot be prolonged does not affect
-- others.
--
-- KEYS  the locks, each a string: its owner; and fencing counters, see eachHeld
-- ARGV  see eachHeld
-- returns  for each lock: 1 prolonged, 0 no such lock, -1 the key is another
--          owner's or no string, or the text of an error

-- include: deadline.lua
-- include: fence_life.lua

return eachHeld(function(lock, lease, owner)
  local held = redis.pcall('getrange', lock, 0, 127) -- an owner is shorter
  if held == owner then return redis.call('pexpire', lock, lease) end
  if held == '' and redis.call('exists', lock) == 0 then return 0 end
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held.err
  end
  return -1
end)
