-- Prolongs the leases of many writers. A lease that cannot be prolonged does not affect
-- others.
--
-- KEYS  the locks, and fencing counters, see eachHeld
-- ARGV  see eachHeld; the owner is the owner's field
-- returns  for each lock: 1 prolonged, 0 no such lock, -1 the key is another
--          owner's or no lock, or the text of an error

-- include: deadline.lua
-- include: readwrite.lua
-- include: fence_life.lua

return eachHeld(function(lock, lease, owner)
  local holds = redis.pcall('hget', lock, owner)
  if type(holds) == 'table' then
    return string.find(holds.err, 'WRONGTYPE', 1, true) and -1 or holds.err
  end
  if holds then
    prolong(lock, lease)
    return 1
  end
  return redis.call('exists', lock) == 1 and -1 or 0
end)
