-- A request that arrives after its deadline changes nothing: its caller has given up,
-- and cleans up behind it. The deadline is the last argument, in µs of this server's
-- clock. It is removed, so the script below finds only its own arguments.
if micros() > tonumber(table.remove(ARGV)) then return {'late'} end

