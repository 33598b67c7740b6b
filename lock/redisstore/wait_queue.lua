-- The wait queue of a mutex is a zset of those who wait for it among leasewheel's
-- clients, one for each process, by the µs of their arrival. A member is
-- "<owner> <offer> <spare> <secret>": the ms for which the owner is granted the lock
-- when its turn comes, how many tokens more than its own it would like then, and what
-- the message that tells of the grant repeats, so that the owner believes it.
--
-- One member is no waiter: gap, whose score is the µs up to which a free lock is left
-- to clients that do not enter the queue. That is for so many ms.
local yieldMember, yieldMillis = 'gap', 10

-- lineUp puts a waiter at the end of the queue, unless it has a place already. The
-- queue outlives its waiters by ten minutes at most.
local function enqueue(queue, waiter)
  local now = micros()
  redis.call('zadd', queue, 'nx', decimal(now), waiter)
  redis.call('pexpire', queue, 600000)
  return now
end

-- waiterOf returns which owner a member of the queue is, the id of its client, its
-- offer, its spare and its secret; or nothing for what is no waiter. Length comes
-- before pattern: anybody may have written the member.
local function waiterOf(member)
  if #member > 128 then return end
  local owner, client, provisional, reserve, secret = string.match(member, '^(([^ :]+):[^ :]+) (%d+) (%d+) ?(%w*)$')
  if not owner or #provisional > 15 or tonumber(provisional) == 0 or #reserve > 15 then return end
  return owner, client, provisional, reserve, secret
end

-- ourChannel returns what leasewheel's clients listen to, and with ":<client>" one of
-- them. It is what the client calls it, see derive there.
local function ourChannel(lock)
  if string.find(lock, '{', 1, true) then return 'leasewheel_lock__channel:' .. lock end
  return 'leasewheel_lock__channel:{' .. lock .. '}'
end

-- serve grants a free lock to the first in the queue that lives: whose client listens
-- to this very server, and not to one that only repeats what this one publishes, as a
-- former master does. It returns for how many ms, and true; or nothing if no waiter is
-- left, or if it is the turn of mine, who asks for itself. It passes over a hundred dead
-- waiters at most, and returns 1 if there are more: the rest is the next run's.
--
-- popped  the first member, if it was taken out already
local function grantNext(lock, queue, counter, publish, life, own, popped)
  for _ = 1, 100 do
    popped = popped or redis.call('zpopmin', queue)[1]
    if not popped or popped == own then return end
    local owner, client, provisional, reserve, secret = waiterOf(popped)
    local channel = owner and ourChannel(lock) .. ':' .. client
    if owner and oursListening(publish, channel) > 0 then
      local made, token, reserved = pcall(nextToken, counter, false, life, reserve)
      if not made then return end -- those who ask learn why
      redis.call('hset', lock, owner, 1)
      redis.call('pexpire', lock, provisional)
      local now, digits = micros()
      sendOurs(publish, channel, table.concat({owner, decimal(token), digits, provisional, decimal(reserved), secret}, ' '))
      return tonumber(provisional), true
    end
    popped = nil
  end
  if redis.call('exists', queue) == 1 then return 1 end
end
