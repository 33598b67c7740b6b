-- The turns of a mutex, kept as those of a plain lock. Clients of Redisson that poll, or
-- listen to a replica, have an eighth of the time while the lock is contended, in parts
-- that are long enough for those who ask ten times a second. Whether there are any is
-- known once one has had the lock: until then, the lock is left free for 0.3 % of the
-- time, which is what it costs those who are alone.
pause = 150000
local probe = 30000

-- leftToOthers reports whether a lock for which a client of ours waits is left free
-- instead, and notes that. However long each has had the lock: the first release after
-- that time is theirs.
local function leftToOthers(turns)
  local seen = past(turns, 'peer')
  local every = seen and often or seldom
  local since = past(turns, 'since')
  if not since then
    keep(turns, 'until', 'since', micros())
  elseif since >= every then
    keep(turns, 'since', 'until', micros() + (seen and pause or probe))
    return true
  end
  return false
end
