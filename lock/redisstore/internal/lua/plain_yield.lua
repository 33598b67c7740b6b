-- How long a plain lock is left to peers.

-- include: yield.lua

local yieldTime = 250000
