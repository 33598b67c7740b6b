-- Describes a message.
--
-- ARGV  2 its id
-- returns  {now, the result of describe, if there is such a message}

-- include: info.lua

return {number(now), describe(ARGV[2])}
