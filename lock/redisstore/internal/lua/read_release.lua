-- Lowers a reader's holds. When the last reader has none, the lock is free and a writer
-- is notified.
--
-- KEYS  1 the lock
--       2 its channel
--       3 the prefix of the keys of the owner's holds
-- ARGV  1 the owner
--       2 the holds it keeps
--       3 the lease in ms, for a lock that is kept
--       4 the command to publish with
-- returns  1 given back, 0 kept, -1 the owner has no hold

-- include: number.lua
-- include: publish.lua
-- include: readwrite.lua

local mode = modeOf(KEYS[1])
if mode ~= 'read' and mode ~= 'write' then return -1 end
local holds = holdsOf(KEYS[1], ARGV[1])
if not holds then return -1 end

local ended = lasts(KEYS[1], KEYS[3], holds)
local dead = ended == -2
local kept = dead and 0 or math.min(tonumber(ARGV[2]), holds)
-- The keys of a reader's further holds expire.
for i = math.max(kept, holds - most) + 1, holds do
  redis.call('del', keyOf(KEYS[3], i))
end
if kept > 0 then
  -- A server out of memory refuses hset and set, unless the script has written before.
  prolong(KEYS[1], ARGV[3])
  redis.call('hset', KEYS[1], ARGV[1], decimal(kept))
  redis.call('set', keyOf(KEYS[3], kept), '1', 'px', ARGV[3])
  return 0
end
redis.call('hdel', KEYS[1], ARGV[1])
if mode == 'read' then
  local left, _, unknown = settle(KEYS[1], ended)
  if not left then redis.call('unlink', KEYS[1]) end
  -- While it is not known whether all other readers are dead, a waiter asks until it is.
  if not left or unknown then send(ARGV[4], KEYS[2], '0') end
end
return dead and -1 or 1
