-- The wait queue of a mutex is a zset of leasewheel's waiters, one for each process, by
-- the µs of their arrival. A member is "<owner> <provisional> <reserve> <secret>": the ms
-- for which a release grants the lock to the owner, how many tokens to reserve beside the
-- grant's, and the secret by which the owner recognises the message of its grant.
--
-- yieldMember is no waiter. Its score is the µs until which a free lock is left to
-- clients that do not enter the queue: the yield window, of yieldMillis.

-- include: number.lua
-- include: clock.lua

local yieldMember, yieldMillis = 'gap', 10

-- enqueue puts a waiter at the end of the queue, unless it has an earlier place already: one
-- of before the server's clock was set back is later than all. The queue outlives its waiters
-- by ten minutes at most.
local function enqueue(queue, waiter)
  local now = micros()
  redis.call('zadd', queue, 'lt', decimal(now), waiter)
  redis.call('pexpire', queue, '600000')
  return now
end
