-- Settles claimed messages. The settlement of the latest claimant counts even when the lease
-- has ended, until another claim has reclaimed the message; done counts until it is claimed.
--
-- ARGV  2… for each message: the action, its id, the token of the claim, a ms, an error:
--       done      handled: the message is deleted
--       retried   failed: it waits for so many ms, with the error
--       buried    failed for good: it becomes a dead letter, with the error
--       returned  not begun: it waits as before, and the attempt does not count
-- returns  for each: 1 applied
--                    0 the message is another claimant's, or deleted
--                    2 it has left the claimant, and waits or is dead

-- include: queue.lua

allowWrites()
local before, outcomes = head(due), {}
for i = 2, #ARGV, 5 do
  local action, id, err = ARGV[i], ARGV[i + 1], ARGV[i + 4]
  local r, outcome = read(id), 1
  if not r or r.token ~= tonumber(ARGV[i + 2]) then
    outcome = 0
  elseif action == 'done' then
    forget(id)
    local _ = call('zrem', leased, id) == 1 or call('zrem', due, id) == 1 or call('zrem', dead, id)
  elseif not call('zscore', leased, id) then
    outcome = 2
  elseif action == 'buried' then
    bury(id, r, err)
  else
    if action == 'retried' then
      r.due, r.err = after(tonumber(ARGV[i + 3])), err
    else
      r.attempt = math.max(0, r.attempt - 1)
    end
    schedule(id, r)
    call('zrem', leased, id)
  end
  outcomes[#outcomes + 1] = outcome
end
publishEarlier(before)
return outcomes
