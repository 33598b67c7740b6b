-- The part that all scripts of a queue share.
--
-- KEYS  1 due       zset of the waiting messages, by the ms (Unix time) from which they
--                   may be claimed
--       2 leased    zset of those with workers, by the ms at which their leases end
--       3 dead      zset of the dead letters, by the ms at which they died
--       4 payloads  hash
--       5 records   hash of "attempt token put due nonce error"
--       6 counter   the largest token granted
--       7 channel   for notifications that the first of due has become an earlier one
-- ARGV  1 the command to publish with
local due, leased, dead, payloads, records, counter, channel = unpack(KEYS, 1, 7)
local call = redis.call

local clock = call('time')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function number(n) return string.format('%.0f', n) end

-- Other clients may have written any data. These are the limits of what is accepted: the
-- largest integer up to which Lua is exact, the longest record, the latest due time and
-- the latest end of a lease.
local exact, longest = 9007199254740991, 4096
local latestDue, latestEnd = now + 3660 * 86400000, now + 25 * 3600000

-- integer parses a text as an exact integer, or returns nil.
local function integer(text)
  if type(text) ~= 'string' or #text > 16 or not string.find(text, '^%d+$') then return nil end
  local n = tonumber(text)
  return n <= exact and n or nil
end

-- bounded returns a score as a possible instant of a message, or nil without a score.
local function bounded(score, latest)
  local at = tonumber(score or nil)
  return at and math.floor(math.max(0, math.min(at, latest)))
end

-- head returns the first score of a zset, or nil.
local function head(zset) return bounded(call('zrange', zset, 0, 0, 'withscores')[2], latestDue) end

-- blank returns a record for a message whose own record was damaged.
local function blank()
  return {attempt = 0, token = 0, put = now, due = now, nonce = '-', err = 'another client has damaged its record', damaged = true}
end

-- read returns a message's record, or nil. A damaged one is blank.
local function read(id)
  local text = call('hget', records, id)
  if not text then return nil end
  local attempt, token, put, when, nonce, err = string.match(#text <= longest and text or '', '^(%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
  local r = {
    attempt = integer(attempt), token = integer(token), put = integer(put), due = integer(when),
    nonce = nonce, err = err,
  }
  return r.attempt and r.token and r.put and r.due and r or blank()
end

-- held returns when the lease of a message with a worker ends, or nil. A message whose
-- lease has ended waits again, even before a claim reclaims it.
local function held(id)
  local ends = bounded(call('zscore', leased, id), latestEnd)
  return ends and ends > now and ends or nil
end

local function write(id, r)
  call('hset', records, id, table.concat({
    number(r.attempt), number(r.token), number(r.put), number(r.due), r.nonce, r.err,
  }, ' '))
end

-- schedule adds a message to the waiting ones, from its due time on.
local function schedule(id, r)
  call('zadd', due, number(r.due), id)
  write(id, r)
end

-- bury makes a message a dead letter. First comes what the server refuses if another client has replaced a
-- key: what a script has done until then stays, and a message in no zset would be lost.
local function bury(id, r, err)
  r.err = err
  call('zadd', dead, number(now), id)
  call('zrem', due, id)
  call('zrem', leased, id)
  write(id, r)
end

-- forget deletes a message, which is removed from its zset afterwards: without that its id, which the records
-- have, would be taken for good if another client has replaced the payloads.
local function forget(id)
  call('hdel', payloads, id)
  call('hdel', records, id)
end

-- salvage makes a waiting message without a record a dead letter, if it has its payload, and
-- reports whether it has.
local function salvage(id)
  if call('hget', payloads, id) then
    local r = blank()
    bury(id, r, r.err)
    return true
  end
  forget(id)
  call('zrem', leased, id)
  call('zrem', due, id)
  return false
end

-- after returns the due time of a message that waits for so many ms: rounded up, so that
-- it is never early, and now for none.
local function after(ms) return ms > 0 and math.ceil(micros / 1000) + ms or now end

-- instant parses a due time: "at" a ms, but not before now, or "in" so many ms.
local function instant(kind, ms) return kind == 'in' and after(tonumber(ms)) or math.max(now, tonumber(ms)) end

-- allowWrites allows the script to write although the server is out of memory, since the
-- queue must then above all be emptied. A server refuses only the first write, and only
-- if the command may need memory.
local function allowWrites() call('zrem', leased, '') end

-- publishEarlier notifies the workers if the first waiting message is earlier than
-- before. It does not fail, since the script has written: polls find the message, too.
local function publishEarlier(before)
  local first = head(due)
  if not first or before and first >= before then return end
  -- A server without the sharded kind refuses it, and workers that have seen it so may be left.
  local received = ARGV[1] ~= 'publish' and redis.pcall('spublish', channel, number(first))
  if received == 0 or type(received) ~= 'number' then redis.pcall('publish', channel, number(first)) end
end
