-- Prolongs the leases of claimed messages.
--
-- ARGV  2… for each: its id, the token of the claim, the lease in ms
-- returns  for each: 1 prolonged, 0 the lease has ended, -1 it is another claimant's

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
