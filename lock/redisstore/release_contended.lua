-- Goes on for a mutex that is waited for, see release.lua.
--
-- A free lock is left for a while to clients that do not enter the wait queue, so that
-- they are not starved. They are known by their subscription to the lock's channel: our
-- clients subscribe to ours as well. They get every other turn.
if handed == '1' and listeners(publish, channel) > listeners(publish, ourChannel(lock)) then
  local kept = redis.pcall('zadd', line, decimal(micros() + 1000 * yields), gap)
  if type(kept) == 'number' then redis.call('pexpire', line, 600000) end
else
  local intact, _, granted = pcall(serve, lock, line, counter, publish, life, nil, popped)
  if intact and granted then return 1 end
end
redis.call(publish, channel, '0')
return 1
