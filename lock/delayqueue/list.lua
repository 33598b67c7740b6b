-- Lists messages of one zset, in the order of their scores.
--
-- ARGV  2 the zset: "due", "leased" or "dead"
--       3 the score after which to begin, "" for none
--       4 the id, of that score, after which to begin, "" for none; it may be gone
--       5 the largest score, "" for none
--       6 the most messages
--       7 the most bytes of payload to read, beside one message
--       8 the most bytes of each payload to return
--       3 and 5 may be "now"
-- returns  {now, 1 if there are more, the score and the id of the last one examined, and
--          for each message: its score, the bytes of its payload, the result of describe with
--          the payload}

-- include: info.lua

local zset, limit, room, clip = ({due = due, leased = leased, dead = dead})[ARGV[2]], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])

local function bound(text) return text == 'now' and number(now) or text end

local from, last, id = 0, bound(ARGV[3]), ARGV[4]
if id ~= '' then
  -- A message that has another score by now was moved, and is no place to continue from.
  local rank = call('zscore', zset, id) == last and call('zrank', zset, id)
  from = rank and rank + 1 or call('zcount', zset, '-inf', '(' .. last)
elseif last ~= '' then
  from = call('zcount', zset, '-inf', last)
end

local found, most = call('zrange', zset, from, from + limit - 1, 'withscores'), tonumber(bound(ARGV[5])) or math.huge
local more, list = #found == 2 * limit and 1 or 0, {}
for i = 1, #found, 2 do
  if (tonumber(found[i + 1]) or math.huge) > most then
    more = 0
    break
  end
  local message = describe(found[i])
  if message then
    local size = call('hstrlen', payloads, found[i])
    local reads = clip > 0 and size or 0
    if reads > room and #list > 0 then
      more = 1
      break
    end
    room, message[9] = room - reads, ''
    if reads > 0 then message[9] = string.sub(call('hget', payloads, found[i]), 1, clip) end
    list[#list + 1] = found[i + 1]
    list[#list + 1] = size
    list[#list + 1] = message
  end
  id, last = found[i], found[i + 1]
end
return {number(now), more, last, id, unpack(list)}
