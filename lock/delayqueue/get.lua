-- Tells of a message.
--
-- ARGV  2 its id
-- returns  {now, what describe tells, if there is such a message}
return {number(now), describe(ARGV[2])}
