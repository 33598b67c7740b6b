-- Prolongs many leases. A lease that cannot be prolonged does not affect others.
--
-- KEYS  the locks, each a hash of owner to holds
-- ARGV  for each lock: its lease in ms, its owner
-- returns  for each lock: 1 prolonged, 0 no such lock, -1 the key is another
--          owner's or no lock, or the text of an error

-- include: deadline.lua

local call, pcall = redis.call, redis.pcall
local outcomes = {}
for i, key in ipairs(KEYS) do
  local held = pcall('hexists', key, ARGV[2 * i])
  if held == 1 then
    outcomes[i] = call('pexpire', key, ARGV[2 * i - 1])
  elseif held ~= 0 then
    outcomes[i] = string.find(held.err, 'WRONGTYPE', 1, true) and -1 or held.err
  elseif call('exists', key) == 1 then
    outcomes[i] = -1
  else
    outcomes[i] = 0
  end
end
return outcomes
