-- The read-write lock, in Redisson's format.
--
--   lock                          hash of 'mode' ('read' or 'write'), of reader to
--                                 holds and of '<writer>:write' to holds. It lasts
--                                 as long as the hold that lasts longest
--   tag:<reader>:rwlock_timeout:i lasts as long as the reader's i-th hold
--
-- A reader whose holds have all ended is dead: it holds nothing any more, though
-- others may keep the hash that names it.

-- modeOf returns 'read', 'write', 'free', or 'foreign' for a key that is something
-- else.
local function modeOf(lock)
  local kind = redis.call('type', lock).ok
  if kind == 'none' then return 'free' end
  return kind == 'hash' and redis.call('hget', lock, 'mode') or 'foreign'
end

-- prolong has a lock last a lease in ms, and no shorter than it does: the lease of
-- another hold may be longer.
local function prolong(lock, lease)
  redis.call('pexpire', lock, math.max(redis.call('pttl', lock), tonumber(lease)))
end

-- lasts returns the ms that a reader's holds, of which there are so many, last yet;
-- a negative number if the reader is dead.
local function lasts(timeouts, holds)
  local longest = -2
  for i = 1, holds do
    longest = math.max(longest, redis.call('pttl', timeouts .. ':' .. i))
  end
  return longest
end

-- settle drops the dead readers of a lock that has no writer, and has it last as
-- long as those that live. It returns for how many ms that is, false if none does.
local function settle(lock, tag)
  local longest = false
  local fields = redis.call('hgetall', lock)
  for i = 1, #fields, 2 do
    local holds = tonumber(fields[i + 1])
    if holds then
      local left = lasts(tag .. ':' .. fields[i] .. ':rwlock_timeout', holds)
      if left >= 0 then
        longest = math.max(longest or 1, left)
      else
        redis.call('hdel', lock, fields[i])
      end
    end
  end
  if longest then redis.call('pexpire', lock, longest) end
  return longest
end
