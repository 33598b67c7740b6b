-- How long a mutex is left to its peers. Clients of Redisson that poll, or subscribe to a
-- replica, get an eighth of the time of a contended lock, in windows that suffice for ten
-- requests a second. Whether there are any is known once one has held the lock. Until then
-- the lock is left free for 0.3 % of the time, which is the cost for leasewheel clients alone;
-- ours ask again within such a window, since what shows a peer is its hold.

-- include: yield.lua

local yieldTime, probeTime, probeAgain = 150000, 30000, 3000
