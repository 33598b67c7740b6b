-- Returns the dead letters after a certain one, in the order in which they died.
--
-- ARGV  2 the id of that one, "" for none
--       3 the ms at which it died, in case it is gone
--       4 the most letters
--       5 the most bytes of payload, beside one letter
-- returns  {now, the result of describe for each}
local reply, room = {number(now)}, tonumber(ARGV[5])
local rank = ARGV[2] ~= '' and call('zrank', dead, ARGV[2])
local from = rank and rank + 1 or call('zcount', dead, '-inf', '(' .. ARGV[3])
for _, id in ipairs(call('zrange', dead, from, from + tonumber(ARGV[4]) - 1)) do
  local letter = describe(id)
  if letter then
    room = room - #letter[9]
    if room < 0 and #reply > 1 then break end
    reply[#reply + 1] = letter
  end
end
return reply
