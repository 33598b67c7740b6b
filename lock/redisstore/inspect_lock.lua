-- describe tells what there is to know of a lock. Whatever the keys hold, it does
-- not fail; of what is huge it reads a part.
--
-- lock, counter, list, timeouts, places  the lock's keys
-- most  the most holders, and the most waiters, to tell of
-- returns  {'lock', 'none' or the type of what is no lock of this format,
--           ms left (-1: without an end, -2: no such key),
--           'read', 'write' or '', holders, {owner field, holds, ms left, …},
--           waiters, {owner, ms that its place is kept, …},
--           fencing token or ''}
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
    end
  end
  return redis.call('llen', list), told
end

local function describe(lock, counter, list, timeouts, places, most)
  local kind, left = redis.call('type', lock).ok, redis.call('pttl', lock)
  local mode, count, told = '', 0, {}
  if kind == 'hash' then
    local m, n, t = holders(lock, left, most)
    if m then kind, mode, count, told = 'lock', m, n, t end
  end
  local waiting, waiters = queue(list, timeouts, places, most)
  local token = redis.pcall('get', counter)
  if type(token) ~= 'string' then token = '' end
  return {kind, left, mode, count, told, waiting, waiters, token}
end
