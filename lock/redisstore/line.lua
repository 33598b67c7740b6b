-- The line of a mutex is a zset of those who wait for it among leasewheel's clients,
-- one for each process, by the µs of their arrival. A member is
-- "<owner> <offer> <spare>": the ms for which the owner is granted the lock when its
-- turn comes, and how many tokens more than its own it would like then.
--
-- One member is no waiter: gap, whose score is the µs up to which a free lock is left
-- to clients that do not line up.
local gap = 'gap'

-- lineUp puts a waiter at the end of the line, unless it has a place already. The
-- line outlives its waiters by ten minutes at most.
local function lineUp(line, waiter)
  local now = micros()
  redis.call('zadd', line, 'nx', decimal(now), waiter)
  redis.call('pexpire', line, 600000)
  return now
end

-- waiterOf returns which owner a member of the line is, the id of its client, its offer
-- and its spare; or nothing for the gap.
local function waiterOf(member) return string.match(member, '^((.*):.*) (%d+) (%d+)$') end

-- listeners returns how many connections to this server listen to a channel.
local function listeners(publish, channel)
  local count = publish == 'publish' and 'numsub' or 'shardnumsub'
  return tonumber(redis.call('pubsub', count, channel)[2])
end

-- channelOf returns the channel of a lock under a prefix. It is what the client calls
-- it, see derive there.
local function channelOf(prefix, lock)
  if string.find(lock, '{', 1, true) then return prefix .. ':' .. lock end
  return prefix .. ':{' .. lock .. '}'
end

-- ourChannel is what leasewheel's clients listen to, and with ":<client>" one of them.
local function ourChannel(lock) return channelOf('leasewheel_lock__channel', lock) end

-- serve grants a free lock to the first in line that lives: whose client listens to
-- this very server, and not to one that only hears what this one says, as a former
-- master does. It returns for how many ms; or nothing if nobody is left, or if it is
-- the turn of mine, who asks for itself.
local function serve(lock, line, counter, publish, life, mine)
  while true do
    local popped = redis.call('zpopmin', line)[1]
    if not popped or popped == mine then return end
    local owner, client, offer, spare = waiterOf(popped)
    local channel = owner and ourChannel(lock) .. ':' .. client
    if owner and listeners(publish, channel) > 0 then
      local token, reserved = nextToken(counter, false, life, spare)
      redis.call('hset', lock, owner, 1)
      redis.call('pexpire', lock, offer)
      local word = table.concat({owner, decimal(token), decimal(micros()), offer, decimal(reserved)}, ' ')
      redis.call(publish, channel, word)
      return tonumber(offer)
    end
  end
end
