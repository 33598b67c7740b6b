-- Prolongs many permits. One that cannot be prolonged costs the others nothing.
--
-- KEYS  for each permit: those in use of its semaphore
-- ARGV  for each permit: its lease in ms, its id
-- returns  for each permit: 1 prolonged, 0 it is not in use, or has expired, -1 the
--          key is something else, or the text of an error
local now = milliseconds()
local outcomes = {}
for i, permits in ipairs(KEYS) do
  local lease, id = ARGV[2 * i - 1], ARGV[2 * i]
  local expires = redis.pcall('zscore', permits, id)
  if type(expires) == 'table' then
    outcomes[i] = string.find(expires.err, 'WRONGTYPE', 1, true) and -1 or expires.err
  elseif expires and tonumber(expires) > now then
    -- A server that is out of memory refuses zadd, unless the script has written
    -- before. There is no such permit.
    redis.call('zrem', permits, '')
    redis.call('zadd', permits, decimal(now + tonumber(lease)), id)
    outcomes[i] = 1
  else
    outcomes[i] = 0
  end
end
return outcomes
