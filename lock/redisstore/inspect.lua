-- Tells about a lock.
--
-- KEYS  1 the lock, 2 its fencing counter
--       3 the list of a fair lock's waiters, 4 their timeouts, 5 their places
-- ARGV  1 the most holders, and the most waiters, to tell of
-- returns  as describe
return describe(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], tonumber(ARGV[1]))
