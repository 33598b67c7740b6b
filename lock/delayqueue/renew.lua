-- Prolongs the leases of claimed messages, also while a cluster moves the queue: there no script
-- of several keys runs of which one is missing, as that of the channel always is.
--
-- KEYS  1 leased
--       2 records
-- ARGV  2… for each: its id, the token of the claim, the lease in ms
-- returns  for each: 1 prolonged, 0 the lease has ended, -1 it is another claimant's

local KEYS = {nil, KEYS[1], nil, nil, KEYS[2]}
-- include: queue.lua

allowWrites()
local outcomes = {}
for i = 2, #ARGV, 3 do
  local id, outcome = ARGV[i], 0
  local ends, r = bounded(call('zscore', leased, id), latestEnd), read(id)
  if ends and r and r.token ~= tonumber(ARGV[i + 1]) then
    outcome = -1
  elseif ends and r and ends > now then
    outcome = 1
    call('zadd', leased, number(now + tonumber(ARGV[i + 2])), id)
  end
  outcomes[#outcomes + 1] = outcome
end
return outcomes
