-- Changes the due time of a waiting message.
--
-- ARGV  2 its id
--       3 "at" or "in", 4 a ms
-- returns  1 moved, 0 no message has this id, -1 a worker has it, -2 it is dead, also since its
--          record was damaged

-- include: queue.lua

local id = ARGV[2]
local r = read(id)
if not r then return 0 end
if held(id) then return -1 end
if call('zscore', dead, id) then return -2 end
allowWrites()
if r.damaged then return salvage(id) and -2 or 0 end
local before = head(due)
r.due = instant(ARGV[3], ARGV[4])
schedule(id, r)
call('zrem', leased, id) -- last, as in revive.lua
publishEarlier(before)
return 1
