-- The turns of a mutex, as of a plain lock. Clients of Redisson that poll, or listen to a
-- replica, have a tenth of the time, in parts that are long enough for those who ask ten
-- times a second.
pause = 120000

-- leftToOthers notes that a lock goes from one of our clients to the next, and reports
-- whether it is left free instead.
local function leftToOthers(turns)
  local intact = pcall(takeTurn, turns)
  return intact and openTurn(turns) > 0
end
