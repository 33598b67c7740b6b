-- The description of a lock that is a hash. Nothing here fails, for any content of the
-- keys. Only a part of huge keys is read.

-- include: number.lua
-- include: milliseconds.lua
-- include: owner.lua
-- include: listeners.lua
-- include: wait_queue.lua
-- include: grant_next.lua
-- include: readwrite.lua

-- ownerText is the most bytes of an owner's text that are returned, and one more.
local ownerText = 513

-- holdsIn returns the number of holds in a field of a lock; nil if the field is no holder.
-- An owner with an unreadable number counts with 0 holds: it keeps others out. Any other
-- text, as of a client whose owners look different, needs a whole number above zero.
local function holdsIn(lock, field, owner)
  local short = redis.call('hstrlen', lock, field) <= 16
  local holds = short and integer(redis.call('hget', lock, field)) or nil
  if isOwner(owner) then return holds or 0 end
  return field ~= 'mode' and holds and holds > 0 and holds or nil
end

-- resembles reports whether a hash without an owner of the known form is a lock of a
-- client whose owners look different. Such a lock has an end, and numbers of holds only:
-- one without a mode. Of many fields it samples a hundred.
local function resembles(lock, left, mode)
  if left < 0 or mode == '' and redis.call('hlen', lock) ~= 1 then return false end
  local found = false
  for _, field in ipairs(redis.call('hrandfield', lock, 100)) do
    if field ~= 'mode' then
      if not holdsIn(lock, field, field) then return false end
      found = true
    end
  end
  return found
end

-- holders returns the mode of a lock, the number of its holders, and some of them, at
-- most most; or nothing if the hash is not a lock. Dead readers among those do not count.
-- known reports whether something else than the hash shows that the name is a lock's.
local function holders(lock, left, most, known)
  if redis.call('hstrlen', lock, 'mode') > 5 then return end
  local mode = redis.call('hget', lock, 'mode') or ''
  if mode ~= '' and mode ~= 'read' and mode ~= 'write' then return end
  if foreign(lock) and not (resembles(lock, left, mode) and (mode ~= '' or known())) then return end
  local size = redis.call('hlen', lock) - (mode ~= '' and 1 or 0)
  local count, found, room = 0, {}, most
  local longest, silent = false, {}
  local function add(owner, holds, remains)
    if count >= most then return end
    count = count + 1
    table.insert(found, owner)
    table.insert(found, decimal(holds))
    table.insert(found, decimal(remains))
  end
  for _, field in ipairs(redis.call('hrandfield', lock, most + 1)) do
    local writes = string.sub(field, -6) == ':write'
    local owner = writes and string.sub(field, 1, -7) or field
    local holds = holdsIn(lock, field, owner)
    if holds then
      local remains = left
      if mode ~= '' and not writes and room > 0 and #owner < ownerText then
        remains = lasts(lock, timeoutsOf(lock, owner), holds > 0 and holds or most)
        if remains == -2 and not isOwner(owner) then remains = left end -- its keys are unknown
        room = room - math.min(math.max(holds, 1), most)
      end
      if remains == -2 and isOurs(owner) then
        size = size - 1
      elseif remains == -2 then
        table.insert(silent, {owner, holds})
      else
        longest = (remains == -1 or longest == -1) and -1 or math.max(longest or 0, remains)
        add(string.sub(owner, 1, ownerText) .. (writes and ':write' or ''), holds, remains)
      end
    elseif field ~= 'mode' then
      size = size - 1
    end
  end
  local kept = keptApart(left, longest)
  for _, reader in ipairs(silent) do
    if kept then
      add(reader[1], reader[2], left)
    else
      size = size - 1
    end
  end
  return mode, size, found
end

-- fairWaiters returns the number of a fair lock's waiters, and the first of them.
local function fairWaiters(list, timeouts, places, most)
  local waiters = redis.pcall('lrange', list, 0, most - 1)
  if waiters.err or #waiters == 0 then return 0, {} end
  local now, found = milliseconds(), {}
  for _, waiter in ipairs(waiters) do
    if isOwner(waiter) then
      local by = redis.pcall('zscore', places, waiter)
      if type(by) ~= 'string' then by = redis.pcall('zscore', timeouts, waiter) end
      by = type(by) == 'string' and tonumber(by) or now
      table.insert(found, waiter)
      table.insert(found, decimal(math.floor(math.max(-1e12, math.min(by - now, 1e12)))))
      table.insert(found, '')
    end
  end
  return redis.call('llen', list), found
end

-- mutexWaiters adds the waiters of a mutex to found, and returns their number. A waiter
-- that is no longer subscribed has 0 ms left, since a release skips it.
local function mutexWaiters(queue, publish, channel, most, found)
  local members = redis.pcall('zrange', queue, 0, most, 'withscores')
  if members.err or #members == 0 then return 0 end
  local kept = decimal(redis.call('pttl', queue))
  for i = 1, #members, 2 do
    local owner, client = waiterOf(members[i])
    if owner and isOwner(owner) and #found < 3 * most then
      table.insert(found, owner)
      table.insert(found, oursListening(publish, channel .. ':' .. client) > 0 and kept or '0')
      table.insert(found, members[i + 1])
    end
  end
  return redis.call('zcard', queue) - (redis.call('zscore', queue, yieldMember) and 1 or 0)
end

-- describe describes a lock.
--
-- keys  the lock, its fencing counter; the list of a fair lock's waiters, their
--       timeouts, their places; the wait queue of a mutex
-- most  the most holders, and the most waiters, to return
-- publish, channel  the command to publish with, whose subscribers are counted, and the
--       prefix of the channels of a mutex's waiters
-- named  the caller asked for the lock by name. Otherwise a hash without an owner of the
--       known form, and without a mode, is a lock only if it has a counter or a queue:
--       other programs store such hashes, too
-- returns  {'lock', 'none' or the type of a key that is no lock of this format,
--           ms left (-1: without an end, -2: no such key),
--           'fair', 'read', 'write' or '', holders, {owner field, holds, ms left, …},
--           waiters, {owner, ms that its place is kept, µs of its arrival or '', …},
--           fencing token or '',
--           '', in place of the count of a name that has a number}
local function describe(keys, most, publish, channel, named)
  local lock = keys[1]
  local kind, left = redis.call('type', lock).ok, redis.call('pttl', lock)
  local mode, count, found = '', 0, {}
  if kind == 'hash' then
    local m, n, t = holders(lock, left, most, function()
      return named or redis.call('exists', keys[2], keys[3], keys[6]) > 0
    end)
    if m then kind, mode, count, found = 'lock', m, n, t end
  end
  local waiting, waiters = fairWaiters(keys[3], keys[4], keys[5], most)
  if mode == '' and waiting > 0 then mode = 'fair' end
  waiting = waiting + mutexWaiters(keys[6], publish, channel, most, waiters)
  local token = redis.pcall('get', keys[2])
  if type(token) ~= 'string' or not integer(token) then token = '' end
  return {kind, left, mode, count, found, waiting, waiters, token, ''}
end
