-- Reads the server's clock.
--
-- KEYS  1 any key of the node
-- returns  the µs since 1970, in decimal

-- include: number.lua
-- include: clock.lua

return decimal(micros())
