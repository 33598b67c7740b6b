-- Puts messages, except those whose ids the queue has, and those beyond its limit.
--
-- ARGV  2 the most messages that the queue may have, 0 for no limit; "transaction" for a
--         Put that must succeed, since the transaction that it is a part of does
--       3… for each message: its id, "at" or "in", a ms, a nonce, its payload
-- returns  for each: 1 put, now or by an earlier run with the same nonce
--                    0 the queue has a message of this id
--                    -1 the queue is full

-- include: queue.lua

local before, room = head(due), math.huge
if ARGV[2] == 'transaction' then
  allowWrites() -- memory may have run out since the server took the transaction
elseif ARGV[2] ~= '0' then
  room = tonumber(ARGV[2]) - call('hlen', records)
end
local outcomes = {}
for i = 3, #ARGV, 5 do
  local id, nonce = ARGV[i], ARGV[i + 3]
  local known, outcome = read(id), nil
  if known then
    outcome = known.nonce == nonce and 1 or 0
  elseif room < 1 then
    outcome = -1
  else
    room, outcome = room - 1, 1
    call('zadd', due, 'xx', 0, '') -- it changes nothing: a user without the right to it leaves no payload
    call('hset', payloads, id, ARGV[i + 4])
    schedule(id, {attempt = 0, token = 0, put = now, due = instant(ARGV[i + 1], ARGV[i + 2]), nonce = nonce, err = ''})
  end
  outcomes[#outcomes + 1] = outcome
end
publishEarlier(before)
return outcomes
