-- Prolongs many leases of permits. A lease that cannot be prolonged does not affect
-- others.
--
-- KEYS  for each lease: the permits in use of its semaphore
-- ARGV  for each lease: its ms, its first permit's id, how many permits
-- returns  for each lease: 1 prolonged, more than 1: prolonged for only so many ms, 0 a
--          permit is not in use, or has expired, -1 the key is something else, or the text
--          of an error

-- include: deadline.lua
-- include: milliseconds.lua
-- include: number.lua
-- include: expiry.lua

local now = milliseconds()
local outcomes = {}
for i, permits in ipairs(KEYS) do
  local lease, ids = ARGV[3 * i - 2], idsOf(ARGV[3 * i - 1], tonumber(ARGV[3 * i]))
  local expires = redis.pcall('zscore', permits, ids[1])
  for other = 2, type(expires) == 'string' and #ids or 0 do
    expires = expires and redis.call('zscore', permits, ids[other])
  end
  if type(expires) == 'table' then
    outcomes[i] = string.find(expires.err, 'WRONGTYPE', 1, true) and -1 or expires.err
  elseif expires and tonumber(expires) > now then
    -- A server out of memory refuses zadd, unless the script has written before. The
    -- removed permit does not exist.
    redis.call('zrem', permits, '')
    put(permits, ids, decimal(now + tonumber(lease)))
    local lasts = lasting(permits, lease)
    outcomes[i] = lasts == tonumber(lease) and 1 or lasts > 1 and lasts or 0
  else
    outcomes[i] = 0
  end
end
return outcomes
