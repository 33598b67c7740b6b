-- include: clock.lua

-- milliseconds returns the server's time in ms since 1970.
local function milliseconds() return math.floor(micros() / 1000) end
