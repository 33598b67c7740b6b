-- Prolongs the leases of many readers. A lease that cannot be prolonged does not affect
-- others.
--
-- KEYS  for each reader: the lock, the key of its first hold
-- ARGV  for each reader: its lease in ms, its owner
-- returns  for each reader: 1 prolonged, the ms if for less than its lease, 0 it has no
--          hold, -1 the key is another owner's or no lock, or the text of an error

-- include: deadline.lua
-- include: number.lua
-- include: readwrite.lua

local function renew(lock, timeouts, lease, owner)
  local holds = redis.pcall('hget', lock, owner)
  if type(holds) == 'table' then
    return string.find(holds.err, 'WRONGTYPE', 1, true) and -1 or holds.err
  end
  local living = 0
  holds = integer(holds) or 0
  local kept = redis.call('pttl', keyOf(timeouts, holds))
  for i = math.max(holds - most, 0) + 1, holds do
    living = living + redis.call('pexpire', keyOf(timeouts, i), lease)
  end
  if living > 0 then return shortened(lock, tonumber(lease), kept) or prolong(lock, lease) end
  local mode = modeOf(lock)
  return (mode == 'free' or mode == 'read') and 0 or -1
end

local outcomes = {}
for i = 1, #KEYS, 2 do
  local timeouts = string.sub(KEYS[i + 1], 1, -3) -- without ":1"
  table.insert(outcomes, renew(KEYS[i], timeouts, ARGV[i], ARGV[i + 1]))
end
return outcomes
