-- Describes a message.
--
-- ARGV  2 its id
-- returns  {now, the result of describe and the payload, if there is such a message}

-- include: info.lua

local message = describe(ARGV[2])
if message then message[9] = call('hget', payloads, ARGV[2]) or '' end
return {number(now), message}
