-- Claims due messages for a lease each. Before that it drops dead letters that were kept
-- long enough, and reclaims messages whose leases have ended.
--
-- KEYS  8 the worker's latest claim
-- ARGV  2 the most messages
--       3 the lease in ms
--       4 the most attempts, 0 for no limit
--       5 the number of this claim: larger than those of the worker's earlier claims, or
--         that of a claim whose reply was lost, which is then repeated
--       6 "again" if it is the number of an earlier claim
--       7 the most messages to reclaim, and letters to drop
--       8 the most bytes of payload, beside one message
--       9 the life of the counter in ms
--       10 for how many ms dead letters are kept, 0 for no limit
-- returns  {now, pause, damaged, dropped, and for each message: id, payload, attempt,
--          token, put, due, error}; now in ms; pause in µs until more may be due, -1 if
--          no more messages are known, -2 if the server has a later claim than this one;
--          damaged is how many messages were dropped without a payload, or became dead
--          letters without a record; dropped is how many dead letters were

-- include: queue.lua

local before, claim, damaged, dropped = head(due), KEYS[8], 0, 0
local limit, lease, most, room = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[8])

-- A token must not be smaller than an earlier one, so there is none without a readable
-- counter.
local text = redis.pcall('get', counter)
local last = text or '0'
if type(last) == 'table' and not string.find(last.err, 'WRONGTYPE', 1, true) then return last end
last = integer(last)
if not last or last > exact - limit then
  return redis.error_reply('ERR the fencing counter ' .. counter .. ' is damaged: set it to the largest token that was granted')
end
allowWrites()

-- exhausted reports whether a message has used all its attempts.
local function exhausted(r) return most > 0 and r.attempt >= most end

local function ended(r)
  return 'the lease of attempt ' .. number(r.attempt) .. ' ended: its worker died, froze or was cut off'
end

-- Between claims that drop as many letters as they may, the server serves others.
local kept, few, restMicros, old = tonumber(ARGV[10]), tonumber(ARGV[7]), 10000, {}
if kept > 0 then
  old = call('zrangebyscore', dead, '-inf', number(now - kept), 'limit', 0, few)
  for _, id in ipairs(old) do
    -- Another client may have added a message to the dead letters that has another place.
    if not call('zscore', due, id) and not call('zscore', leased, id) then
      forget(id)
      dropped = dropped + 1
    end
    call('zrem', dead, id)
  end
end

for _, id in ipairs(call('zrangebyscore', leased, '-inf', number(now), 'limit', 0, ARGV[7])) do
  local r = read(id)
  if not r or r.damaged then
    salvage(id)
    damaged = damaged + 1
  elseif exhausted(r) then
    bury(id, r, ended(r))
  else
    schedule(id, r)
    call('zrem', leased, id)
  end
end

-- Scores beyond the latest were written by other clients, or before the clock was set
-- back.
for _, id in ipairs(call('zrangebyscore', leased, number(latestEnd + 1), '+inf', 'limit', 0, ARGV[7])) do
  call('zadd', leased, number(now + lease), id)
end
for _, id in ipairs(call('zrangebyscore', due, number(latestDue + 1), '+inf', 'limit', 0, ARGV[7])) do
  local r = read(id)
  if not r or r.damaged then
    salvage(id)
    damaged = damaged + 1
  else
    r.due = math.min(r.due, latestDue)
    schedule(id, r)
  end
end

local reply = {}
local function deliver(id, payload, r)
  call('zadd', leased, number(now + lease), id)
  for _, part in ipairs({id, payload, number(r.attempt), number(r.token), number(r.put), number(r.due), r.err}) do
    reply[#reply + 1] = part
  end
  room = room - #payload
end

-- redeliver repeats the reply of an earlier claim, whose tokens are consecutive.
local function redeliver(earlier)
  for i, id in ipairs(earlier[3]) do
    local r = read(id)
    local payload = call('hget', payloads, id)
    if payload and r and r.token == tonumber(earlier[2]) + i - 1 and call('zscore', leased, id) then
      deliver(id, payload, r)
    end
  end
end

local function claimDue()
  -- They change nothing: claims of a user without the rights use no attempts.
  call('zadd', leased, 'xx', 0, '')
  call('set', counter, '', text and 'nx' or 'xx')
  local first = math.max(micros, last + 1)
  local ids = {}
  for _, id in ipairs(call('zrangebyscore', due, '-inf', number(now), 'limit', 0, limit)) do
    local payload, r = call('hget', payloads, id), read(id)
    local sound = payload and r and not r.damaged and not exhausted(r)
    local refused = not sound and type(redis.pcall('zscore', dead, id)) == 'table' -- as a dead letter
    if #ids > 0 and (refused or payload and #payload > room) then break end
    if not payload or not r or r.damaged then
      salvage(id)
      damaged = damaged + 1
    elseif not sound then -- moved since its last lease ended
      bury(id, r, r.err ~= '' and r.err or ended(r))
    else
      r.attempt, r.token = r.attempt + 1, first + #ids
      ids[#ids + 1] = id
      write(id, r)
      deliver(id, payload, r)
      call('zrem', due, id)
    end
  end
  if #ids > 0 then call('set', counter, number(first + #ids - 1), 'px', ARGV[9]) end
  -- An earlier request of the same number may still be in flight.
  if #ids > 0 or ARGV[6] == 'again' then
    call('set', claim, cjson.encode({ARGV[5], number(first), ids}), 'px', lease)
  end
end

-- latest returns the worker's latest claim. An invalid one counts as an old one, and is
-- replaced.
local function latest()
  local old = {'0', '0', {}}
  local text = redis.pcall('get', claim)
  if type(text) ~= 'string' or #text > 65536 then return old end
  local ok, known = pcall(cjson.decode, text)
  if not ok or type(known) ~= 'table' or type(known[3]) ~= 'table' or #known[3] > 100 then return old end
  if not integer(known[1]) or not integer(known[2]) then return old end
  for _, id in ipairs(known[3]) do
    if type(id) ~= 'string' then return old end
  end
  return known
end

-- A request that was overtaken by later ones gets no messages: its worker does not wait
-- for the reply.
local earlier = latest()
local past = integer(earlier[1]) - tonumber(ARGV[5])
if past == 0 then redeliver(earlier) elseif past < 0 then claimDue() end

local first, ending = head(due), head(leased)
local at = math.min(first or math.huge, ending or math.huge)
local pause = at == math.huge and -1 or math.max(0, at * 1000 - micros)
if #old == few and (pause < 0 or pause > restMicros) then pause = restMicros end -- more may follow
if past > 0 then pause = -2 end
publishEarlier(before)
return {number(now), number(pause), damaged, dropped, unpack(reply)}
