-- The turns of a mutex, kept as those of a plain lock. Clients of Redisson that poll, or
-- listen to a replica, have an eighth of the time while the lock is contended, in parts
-- that are long enough for those who ask ten times a second. Whether there are any is
-- known once one has had the lock: until then, the lock is left free for 0.3 % of the
-- time, which is what it costs those who are alone.
yieldTime = 150000
local probeTime = 30000

-- leftToOthers reports whether a lock for which a client of ours waits is left free
-- instead, and notes that. However long each has had the lock: the first release after
-- that time is theirs.
local function yieldToPollers(yieldState)
  local seen = age(yieldState, 'peer')
  local every = seen and yieldInterval or rareYieldInterval
  local since = age(yieldState, 'since')
  if not since then
    record(yieldState, 'until', 'since', micros())
  elseif since >= every then
    record(yieldState, 'since', 'until', micros() + (seen and yieldTime or probeTime))
    return true
  end
  return false
end
