-- Says what became of claimed messages. The word of the latest claimant counts, also
-- when its lease has ended, as long as nobody has claimed the message since.
--
-- ARGV  2… for each message: what, its id, the token of the claim, a ms, an error:
--       done   handled: the message is forgotten
--       retry  failed: it waits for so many ms, with the error
--       dead   failed for good: it becomes a dead letter, with the error
--       back   not begun: it waits as before, and the attempt does not count
-- returns  for each: 1 so be it
--                    0 the message is another claimant's, or no more
--                    2 it is not with the claimant any more, and waits or is dead
allowWrites()
local before, outcomes = head(due), {}
for i = 2, #ARGV, 5 do
  local action, id, err = ARGV[i], ARGV[i + 1], ARGV[i + 4]
  local r, outcome = read(id), 1
  if not r or r.token ~= tonumber(ARGV[i + 2]) then
    outcome = 0
  elseif action == 'done' then
    local _ = call('zrem', leased, id) == 1 or call('zrem', due, id) == 1 or call('zrem', dead, id)
    forget(id)
  elseif call('zrem', leased, id) == 0 then
    outcome = 2
  elseif action == 'retry' then
    r.due, r.err = after(tonumber(ARGV[i + 3])), err
    schedule(id, r)
  elseif action == 'dead' then
    bury(id, r, err)
  else
    r.attempt = math.max(0, r.attempt - 1)
    schedule(id, r)
  end
  outcomes[#outcomes + 1] = outcome
end
publishEarlier(before)
return outcomes
