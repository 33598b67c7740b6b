-- What there is to know of a lock that is a hash. Whatever the keys hold, nothing here
-- fails; of what is huge a part is read.

local function isOwner(field)
  return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') ~= nil
end

-- reading returns for how many ms a reader has a lock yet (-1: without an end, -2: it
-- is dead). Each of its holds has a key; nobody has many.
local function reading(lock, reader, holds, most)
  local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  local longest = -2
  for i = 1, math.min(holds, most) do
    local left = redis.call('pttl', tag .. ':' .. reader .. ':rwlock_timeout:' .. i)
    if left == -1 then return -1 end
    longest = math.max(longest, left)
  end
  return longest
end

-- holders returns the mode of a lock, how many holders it has, and the first of
-- them; or nothing if the hash is not a lock. Dead readers do not count.
local function holders(lock, left, most)
  local mode = redis.call('hget', lock, 'mode') or ''
  if mode ~= '' and mode ~= 'read' and mode ~= 'write' then return end
  local size = redis.call('hlen', lock)
  local fields
  if size <= most + 1 then
    fields = redis.call('hgetall', lock)
  else
    fields = redis.call('hscan', lock, 0, 'count', most)[2]
  end
  local count, told = 0, {}
  if mode ~= '' then size = size - 1 end
  if size == 0 then return end
  for i = 1, #fields, 2 do
    local field, holds = fields[i], fields[i + 1]
    if field ~= 'mode' then
      local writer = string.match(field, '^(.*):write$')
      if not isOwner(writer or field) or not string.find(holds, '^%d+$') or #holds > 15 then return end
      local lasts = left
      if mode ~= '' and not writer then lasts = reading(lock, field, tonumber(holds), most) end
      if lasts == -2 then
        size = size - 1
      elseif count < most then
        count = count + 1
        table.insert(told, field)
        table.insert(told, holds)
        table.insert(told, number(lasts))
      end
    end
  end
  return mode, size, told
end

-- queue returns how many waiters a fair lock has, and the first of them.
local function queue(list, timeouts, places, most)
  local waiters = redis.pcall('lrange', list, 0, most - 1)
  if waiters.err or #waiters == 0 then return 0, {} end
  local now, told = milliseconds(), {}
  for _, waiter in ipairs(waiters) do
    if isOwner(waiter) then
      local by = redis.pcall('zscore', places, waiter)
      if type(by) ~= 'string' then by = redis.pcall('zscore', timeouts, waiter) end
      by = type(by) == 'string' and tonumber(by) or now
      table.insert(told, waiter)
      table.insert(told, number(math.max(-1e12, math.min(by - now, 1e12))))
      table.insert(told, '')
    end
  end
  return redis.call('llen', list), told
end

-- inLine adds to told those who wait in the line of a mutex, and returns how many they
-- are. Whoever does not listen any more is passed over.
local function inLine(line, publish, channel, most, told)
  local members = redis.pcall('zrange', line, 0, most, 'withscores')
  if members.err or #members == 0 then return 0 end
  local kept = number(redis.call('pttl', line))
  for i = 1, #members, 2 do
    local owner, client = waiterOf(members[i])
    if owner and isOwner(owner) and #told < 3 * most then
      table.insert(told, owner)
      table.insert(told, listeners(publish, channel .. ':' .. client) > 0 and kept or '0')
      table.insert(told, members[i + 1])
    end
  end
  return redis.call('zcard', line) - (redis.call('zscore', line, gap) and 1 or 0)
end

-- describe tells of a lock.
--
-- keys  the lock, its fencing counter; the list of a fair lock's waiters, their
--       timeouts, their places; the line of a mutex
-- most  the most holders, and the most waiters, to tell of
-- publish, channel  the command to publish with, whose listeners are counted, and the
--       channels of those in line, without the client
-- returns  {'lock', 'none' or the type of what is no lock of this format,
--           ms left (-1: without an end, -2: no such key),
--           'fair', 'read', 'write' or '', holders, {owner field, holds, ms left, …},
--           waiters, {owner, ms that its place is kept, µs since when or '', …},
--           fencing token or '',
--           '', where the count is of a name that has a number}
local function describe(keys, most, publish, channel)
  local lock = keys[1]
  local kind, left = redis.call('type', lock).ok, redis.call('pttl', lock)
  local mode, count, told = '', 0, {}
  if kind == 'hash' then
    local m, n, t = holders(lock, left, most)
    if m then kind, mode, count, told = 'lock', m, n, t end
  end
  local waiting, waiters = queue(keys[3], keys[4], keys[5], most)
  if mode == '' and waiting > 0 then mode = 'fair' end
  waiting = waiting + inLine(keys[6], publish, channel, most, waiters)
  local token = redis.pcall('get', keys[2])
  if type(token) ~= 'string' then token = '' end
  return {kind, left, mode, count, told, waiting, waiters, token, ''}
end
