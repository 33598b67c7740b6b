-- The part of plain_release.lua for a plain lock with waiters of ours, and for clusters.
-- The release has succeeded even if the yield state is broken.
if (received or send(publish, channel, '0')) > 0 then
  pcall(recordHandOff, yieldState)
else
  redis.pcall('hdel', yieldState, 'since')
end
return 1
