-- Goes on for a mutex that is waited for, see release.lua.
--
-- A free lock is left for a while to clients that do not enter the wait queue, so that
-- they are not starved. Those who listen here are known by their subscription to the
-- lock's channel: our clients subscribe to ours as well. They get every other turn. For
-- those who listen elsewhere, or poll, it is left free now and then.
local awaited = popped or redis.pcall('exists', queue) == 1
local sound, left
if awaited then sound, left = pcall(yieldToPollers, yieldState) end
if grantedByRelease == '1' and othersListening(publish, channel, ourChannel(lock)) then
  local kept = redis.pcall('zadd', queue, decimal(micros() + 1000 * yieldMillis), yieldMember)
  if type(kept) == 'number' then redis.call('pexpire', queue, 600000) end
elseif awaited and sound and left then
  if popped then -- it keeps its place
    redis.call('zadd', queue, since, popped)
    redis.call('pexpire', queue, 600000)
  end
elseif awaited then
  local intact, _, granted = pcall(grantNext, lock, queue, counter, publish, life, nil, popped)
  if intact and granted then return 1 end
end
send(publish, channel, '0')
return 1
