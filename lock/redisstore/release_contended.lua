-- The part of release.lua for a mutex that has waiters. It needs publish.lua,
-- listeners.lua, grant_next.lua and mutex_yield.lua.
--
-- A free lock is left for a while to clients that do not enter the wait queue, so that
-- they are not starved. Those that subscribe here are counted on the lock's channel: our
-- clients subscribe to ours as well. They get every other grant. For clients that
-- subscribe elsewhere, or poll, the lock is left free now and then.
local sound, left
if popped then sound, left = pcall(yieldToPollers, yieldState) end
local others = grantedByRelease == '1' and othersListening(publish, channel, ourChannel(lock))
if others or popped and sound and left then
  if popped then redis.pcall('zadd', queue, arrived, popped) end -- it keeps its place
  if others then redis.pcall('zadd', queue, decimal(micros() + 1000 * yieldMillis), yieldMember) end
  redis.pcall('pexpire', queue, 600000)
elseif popped then
  local intact, _, granted = pcall(grantNext, lock, queue, counter, publish, life, nil, popped)
  if intact and granted then return 1 end
end
send(publish, channel, '0')
return 1
