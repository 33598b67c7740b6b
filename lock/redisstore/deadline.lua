-- A request that arrives after its deadline changes nothing: its caller has given up,
-- and cleans up behind it. The last two arguments are the deadline, in µs of this server's
-- clock, and for how many µs from now it may be: a deadline beyond that was reckoned by a
-- clock that has been set back since, or by another server's. They are removed, so the
-- script below finds only its own arguments.
do
  local most = tonumber(table.remove(ARGV))
  local left = tonumber(table.remove(ARGV)) - micros()
  if left < 0 or left > most then return {'late'} end
end
