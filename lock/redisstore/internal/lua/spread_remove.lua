-- Removes the keys that spread_write.lua has written.
--
-- KEYS  the keys
-- returns  how many there were
local removed = 0
for _, key in ipairs(KEYS) do removed = removed + redis.call('hdel', key, 'x') end
return removed
