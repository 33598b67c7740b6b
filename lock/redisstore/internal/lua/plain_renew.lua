-- Prolongs many leases of plain locks. A lease that cannot be prolonged does not affect
-- others.
--
-- KEYS  the locks, each a string: its owner
-- ARGV  for each lock: its lease in ms, its owner
-- returns  for each lock: 1 prolonged, 0 no such lock, -1 the key is another
--          owner's or no string, or the text of an error

-- include: deadline.lua

local outcomes = {}
for i, key in ipairs(KEYS) do
  local held = redis.pcall('getrange', key, 0, 127) -- an owner is shorter
  if held == ARGV[2 * i] then
    outcomes[i] = redis.call('pexpire', key, ARGV[2 * i - 1])
  elseif held == '' and redis.call('exists', key) == 0 then
    outcomes[i] = 0
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    outcomes[i] = held.err
  else
    outcomes[i] = -1
  end
end
return outcomes
