-- The part of acquire.lua for a mutex that another owner holds, and for requests with all
-- arguments. Most requests of waiters end here, before the functions of the next part
-- are made. It needs owner.lua and wait_queue.lua, and continues in acquire_contended.lua:
-- the order stands at acquire in mutex.go.
count, waiter, reserve = count or '1', waiter or '', reserve or '0'

local function refused(left)
  return {0, left, waiter ~= '' and enqueue(queue, waiter) or 0}
end

local left, holder = redis.call('pttl', lock), nil
local holds = left ~= -2 and redis.pcall('hget', lock, owner)
if type(holds) == 'table' then
  if string.find(holds.err, 'WRONGTYPE', 1, true) then return {2, left, 0} end
  return holds
elseif not holds and count ~= '1' then
  return {3, 0, 0}
elseif not holds and left ~= -2 then
  holder = anyOwner(lock)
  if not holder then return {2, left, 0} end
  if isOurs(holder) then return refused(left) end
end
