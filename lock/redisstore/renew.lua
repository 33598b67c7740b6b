-- Prolongs many leases. One that cannot be prolonged costs the others nothing.
--
-- KEYS  the locks, each a hash of owner to holds
-- ARGV  for each lock: its lease in ms, its owner
-- returns  for each lock: 1 prolonged, 0 no such lock, -1 the key is another
--          owner's or no lock, or an error
local outcomes = {}
for i, key in ipairs(KEYS) do
  local holds = redis.pcall('hget', key, ARGV[2 * i])
  if type(holds) == 'table' then
    outcomes[i] = string.find(holds.err, 'WRONGTYPE', 1, true) and -1 or holds
  elseif holds then
    outcomes[i] = redis.call('pexpire', key, ARGV[2 * i - 1])
  elseif redis.call('exists', key) == 1 then
    outcomes[i] = -1
  else
    outcomes[i] = 0
  end
end
return outcomes
