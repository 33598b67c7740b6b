-- describe tells what there is to know of a lock. Whatever the keys hold, it does
-- not fail; of what is huge it reads a part.
--
-- lock, counter, list, timeouts, places  the lock's keys
-- most  the most holders, and the most waiters, to tell of
-- returns  {'lock', 'none' or the type of what is no lock of this format,
--           ms left (-1: without an end, -2: no such key),
--           'read', 'write' or '', holders, {owner field, holds, …},
--           waiters, {owner, ms that its place is kept, …},
--           fencing token or ''}
local function isOwner(field)
  return string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+$') ~= nil
end

-- holders returns the mode of a lock, how many holders it has, and the first of
-- them; or nothing if the hash is not a lock.
local function holders(lock, most)
  local count = redis.call('hlen', lock)
  local fields
  if count <= most + 1 then
    fields = redis.call('hgetall', lock)
  else
    fields = redis.call('hscan', lock, 0, 'count', most)[2]
  end
  local mode, told = '', {}
  for i = 1, #fields, 2 do
    local field, value = fields[i], fields[i + 1]
    if field == 'mode' then
      if value ~= 'read' and value ~= 'write' then return end
    elseif not string.find(value, '^%d+$') or #value > 15 then
      return
    elseif not isOwner(field) and not isOwner(string.match(field, '^(.*):write$') or '') then
      return
    elseif #told < 2 * most then
      told[#told + 1] = field
      told[#told + 1] = value
    end
  end
  local stated = redis.call('hget', lock, 'mode')
  if stated then mode, count = stated, count - 1 end
  if count > 0 then return mode, count, told end
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
      told[#told + 1] = waiter
      told[#told + 1] = number(math.max(-1e12, math.min(by - now, 1e12)))
    end
  end
  return redis.call('llen', list), told
end

local function describe(lock, counter, list, timeouts, places, most)
  local kind, mode, count, told = redis.call('type', lock).ok, '', 0, {}
  if kind == 'hash' then
    local m, n, t = holders(lock, most)
    if m then kind, mode, count, told = 'lock', m, n, t end
  end
  local waiting, waiters = queue(list, timeouts, places, most)
  local token = redis.pcall('get', counter)
  if type(token) ~= 'string' then token = '' end
  return {kind, redis.call('pttl', lock), mode, count, told, waiting, waiters, token}
end
