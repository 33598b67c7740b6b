-- Prolongs the leases of many writers. A lease that cannot be prolonged does not affect
-- others.
--
-- KEYS  the locks
-- ARGV  for each lock: its lease in ms, the owner's field
-- returns  for each lock: 1 prolonged, 0 no such lock, -1 the key is another
--          owner's or no lock, or the text of an error

-- include: deadline.lua
-- include: readwrite.lua

local outcomes = {}
for i, lock in ipairs(KEYS) do
  local holds = redis.pcall('hget', lock, ARGV[2 * i])
  if type(holds) == 'table' then
    outcomes[i] = string.find(holds.err, 'WRONGTYPE', 1, true) and -1 or holds.err
  elseif holds then
    prolong(lock, ARGV[2 * i - 1])
    outcomes[i] = 1
  else
    outcomes[i] = redis.call('exists', lock) == 1 and -1 or 0
  end
end
return outcomes
