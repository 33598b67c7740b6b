-- Drops a waiting message, or a dead letter.
--
-- ARGV  2 its id
-- returns  1 dropped, 0 no message has this id, -1 a worker has it

-- include: queue.lua

local id = ARGV[2]
if not read(id) then return 0 end
if held(id) then return -1 end
allowWrites() -- it removes nothing: a user without the right to zrem drops no record of a message that stays
forget(id)
local _ = call('zrem', due, id) == 1 or call('zrem', leased, id) == 1 or call('zrem', dead, id)
return 1
