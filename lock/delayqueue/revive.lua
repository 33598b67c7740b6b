-- Has dead letters wait again, for now and with all their attempts before them.
--
-- ARGV  2… their ids
-- returns  for each: 1 revived, 0 there is no dead letter of that name
allowWrites()
local before, outcomes = head(due), {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local r = read(id) or blank()
  local outcome = call('zrem', dead, id)
  if outcome == 1 then
    -- Without a token, a word of the last claimant that comes now is too late.
    r.attempt, r.token, r.due = 0, 0, now
    schedule(id, r)
  end
  outcomes[#outcomes + 1] = outcome
end
publishEarlier(before)
return outcomes
