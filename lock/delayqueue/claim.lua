-- Claims messages that are due, for a lease each. Before that it takes those back
-- whose leases have ended.
--
-- KEYS  8 the worker's latest claim
-- ARGV  2 the most messages
--       3 the lease in ms
--       4 the most attempts, 0 for no limit
--       5 the number of this claim, which the worker has not used before
--       6 "again" if the answer to a claim of this number was lost: what it gave is
--         given once more
--       7 the most messages to take back
--       8 the most bytes of payload, beside one message
--       9 the life of the counter in ms
-- returns  {now, pause, damaged, and for each message: id, payload, attempt, token,
--          put, due, error}; now in ms, pause in µs until there may be more, -1 for
--          nothing in sight; damaged is how many were dropped for want of a part
local before, claim = head(due), KEYS[8]
local limit, lease, most, room = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[8])
spend()

for _, id in ipairs(call('zrangebyscore', leased, '-inf', number(now), 'limit', 0, ARGV[7])) do
  call('zrem', leased, id)
  local r = read(id)
  if r and most > 0 and r.attempt >= most then
    bury(id, r, 'the lease of attempt ' .. number(r.attempt) .. ' ended: its worker died, froze or was cut off')
  elseif r then
    wait(id, r)
  end
end

local damaged, reply = 0, {}
local function hand(id, payload, r)
  call('zadd', leased, number(now + lease), id)
  for _, part in ipairs({id, payload, number(r.attempt), number(r.token), number(r.put), number(r.due), r.err}) do
    reply[#reply + 1] = part
  end
  room = room - #payload
end

-- The tokens of a claim follow each other.
local function renewed(earlier)
  for i, id in ipairs(earlier[3]) do
    local r = read(id)
    if r and r.token == tonumber(earlier[2]) + i - 1 and call('zscore', leased, id) then
      hand(id, call('hget', payloads, id), r)
    end
  end
end

local function fresh()
  local first = math.max(micros, (tonumber(call('get', counter)) or 0) + 1)
  local ids = {}
  for _, id in ipairs(call('zrangebyscore', due, '-inf', number(now), 'limit', 0, limit)) do
    local payload, r = call('hget', payloads, id), read(id)
    if payload and #ids > 0 and #payload > room then break end
    call('zrem', due, id)
    if payload and r then
      r.attempt, r.token = r.attempt + 1, first + #ids
      ids[#ids + 1] = id
      write(id, r)
      hand(id, payload, r)
    else
      forget(id)
      damaged = damaged + 1
    end
  end
  if #ids > 0 then
    call('set', counter, number(first + #ids - 1), 'px', ARGV[9])
    call('set', claim, cjson.encode({ARGV[5], number(first), ids}), 'px', lease)
  end
end

local earlier = ARGV[6] == 'again' and call('get', claim)
earlier = earlier and cjson.decode(earlier)
if earlier and earlier[1] == ARGV[5] then renewed(earlier) else fresh() end

local first, ending = head(due), head(leased)
local at = math.min(first or math.huge, ending or math.huge)
local pause = at == math.huge and -1 or math.max(0, at * 1000 - micros)
tell(before)
return {number(now), number(pause), damaged, unpack(reply)}
