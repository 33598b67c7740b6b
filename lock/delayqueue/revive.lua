-- Returns dead letters to the queue, due now and with no attempts used.
--
-- ARGV  2… their ids
-- returns  for each: 1 revived, 0 no dead letter has this id

-- include: queue.lua

allowWrites()
local before, outcomes = head(due), {}
for i = 2, #ARGV do
  local id = ARGV[i]
  local r = read(id) or blank()
  local outcome = call('zscore', dead, id) and 1 or 0
  if outcome == 1 then
    -- Without a token, a late settlement of the last claimant has no effect.
    r.attempt, r.token, r.due = 0, 0, now
    schedule(id, r)
    call('zrem', dead, id) -- last: a message in no zset would be lost, if the user has no right to the others
  end
  outcomes[#outcomes + 1] = outcome
end
publishEarlier(before)
return outcomes
