-- The read-write lock, in Redisson's format.
--
--   lock                          hash of 'mode' ('read' or 'write'), of reader to holds
--                                 and of '<writer>:write' to holds. It lasts as long as
--                                 the longest hold
--   tag:<reader>:rwlock_timeout:i lasts as long as the reader's i-th hold
--
-- A reader whose holds have all ended is dead. It has no hold, though the holds of others
-- may keep the hash that names it. But the watchdog of Redisson 3.44 to 4.3 renews the hash
-- alone: of a reader with several holds, and of each lock but the first that a client reads
-- under. So a reader of another client lives while the hash has an end that no hold has.

-- include: number.lua
-- include: owner.lua

-- most is how many keys of holds, and how many fields of the hash, one run of a script
-- examines, so that the run is short.
local most = 100

-- modeOf returns 'read', 'write', 'free', or 'foreign' for any other key.
local function modeOf(lock)
  local kind = redis.call('type', lock).ok
  if kind == 'none' then return 'free' end
  local mode = kind == 'hash' and redis.call('hget', lock, 'mode')
  return (mode == 'read' or mode == 'write') and mode or 'foreign'
end

-- refusal returns the reply to an owner that cannot have the lock for so many ms.
local function refusal(lock, left)
  if foreign(lock) then return {2, redis.call('pttl', lock)} end
  return {0, left}
end

-- holdsOf returns how many holds a field of the lock has; nil without such a field, or
-- without a number in it.
local function holdsOf(lock, field)
  local holds = integer(redis.call('hget', lock, field))
  return holds and holds > 0 and holds or nil
end

-- prolong makes a lock last at least a lease in ms. It does not shorten the lock: another
-- hold may have a longer lease.
local function prolong(lock, lease)
  return redis.call('pexpire', lock, math.max(redis.call('pttl', lock), tonumber(lease)))
end

-- shortened returns the ms left for a reader if another one's watchdog has shortened the
-- lock to its own lease, as Redisson's does; otherwise nil. Redisson before 4.4 also
-- shortens the holds of all readers. Then less than half of the lease is left, while a
-- third of it is between two renewals. The lock is made to last twice the rest: so its
-- reader renews before the end that the watchdog leaves, and after that watchdog's death
-- has more time with each renewal.
--
-- kept  for how many ms the reader's hold would last
local function shortened(lock, lease, kept)
  local left = redis.call('pttl', lock)
  if left < 0 or left + 100 >= kept and left >= lease / 2 then return nil end
  left = math.min(math.max(left, 500), lease)
  redis.call('pexpire', lock, math.min(2 * left, lease))
  return left
end

-- keyOf returns the key of a reader's i-th hold.
local function keyOf(timeouts, i) return timeouts .. ':' .. decimal(i) end

-- lasts returns the ms left of a reader's holds (-1: without an end, -2: the reader is
-- dead), and how many keys it has examined: those of the latest holds. A reader with
-- further holds may last as long as the lock.
local function lasts(lock, timeouts, holds)
  local longest, looked = -2, 0
  for i = holds, math.max(holds - most, 0) + 1, -1 do
    longest, looked = math.max(longest, redis.call('pttl', keyOf(timeouts, i))), looked + 1
  end
  if longest == -1 or longest == -2 and looked < holds then longest = redis.call('pttl', lock) end
  return longest, looked
end

-- timeoutsOf returns the prefix of the keys of a reader's holds.
local function timeoutsOf(lock, reader)
  local tag = string.find(lock, '{', 1, true) and lock or '{' .. lock .. '}'
  return tag .. ':' .. reader .. ':rwlock_timeout'
end

-- keptApart reports whether a lock that has left ms has another end than its readers' holds,
-- of which the longest lasts for longest ms (-1: without an end, false: there is none).
-- Another one, which has just ended, had ended ms.
local function keptApart(left, longest, ended)
  return left > 0 and longest ~= -1 and math.abs(left - math.max(longest or 0, ended or 0)) > 100
end

-- settle drops the dead readers of a lock without a writer, and makes the lock last as
-- long as the living ones. Of many readers it examines a random sample.
--
-- ended    the ms that a hold which has just ended had left: it may explain the lock's end
-- returns  for how many ms the lock is still held (-1: without an end); 1 if all examined
--          readers are dead, but there are others; false if the lock is free. And after
--          how many ms the first of those examined ends: it may be the last one then. And
--          true if they are dead, but there are others
local function settle(lock, ended)
  local longest, soonest, room, silent = false, nil, most, {}
  local fields = redis.call('hrandfield', lock, most)
  local all = redis.call('hlen', lock) <= most
  for _, field in ipairs(fields) do
    if room <= 0 then
      all = false
      break
    elseif isOwner(field) then
      local left, looked = lasts(lock, timeoutsOf(lock, field), holdsOf(lock, field) or most)
      room = room - looked
      if left == -2 then
        silent[#silent + 1] = field
      else
        if left == -1 or longest == -1 then
          longest = -1
        else
          longest = math.max(longest or 1, left)
        end
        if left ~= -1 then soonest = math.min(soonest or left, left) end
      end
    end
  end
  local left = redis.call('pttl', lock)
  local living, kept = longest, keptApart(left, longest, ended)
  for _, field in ipairs(silent) do
    if isOurs(field) or not living and not kept then -- beside the living it keeps no writer out
      redis.call('hdel', lock, field)
    elseif kept then
      longest, soonest = math.max(longest or 1, left), math.min(soonest or left, left)
    end
  end
  if not all then
    if longest then return redis.call('pttl', lock), soonest or -1 end
    local others = redis.call('hlen', lock) > 1 -- the mode is no reader
    return others and 1, 1, others
  end
  if longest and longest > 0 then redis.call('pexpire', lock, longest) end
  return longest, soonest or -1
end
