-- A request that arrives after its deadline changes nothing: its caller has given up, and
-- cleans up. The last two arguments are the deadline, in µs of this server's clock, and
-- how many µs it may lie ahead. A deadline beyond that was computed by a clock that has
-- been set back since, or by another server's. The arguments are removed, so that the
-- script finds only its own.

-- include: clock.lua

local microsLeft
do
  local most = tonumber(table.remove(ARGV))
  microsLeft = tonumber(table.remove(ARGV)) - micros()
  if microsLeft < 0 or microsLeft > most then return {'late'} end
end
