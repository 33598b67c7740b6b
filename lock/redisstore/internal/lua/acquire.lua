-- Grants a mutex to an owner if it is free and no other waiter precedes the owner in the
-- wait queue, or if the owner holds it already. Or grants any number of mutexes to one owner
-- each, if they are free and have no waiters: a shared run, see shared.go.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its wait queue
--       3 its fencing counter
--       4 its yield state
-- ARGV  1 the command to publish with
--       2 the life of the fencing counter in ms, 0 for no end
--       3 the lease in ms
--       4 the owner
--       5 the proposed token, a multiple of 16: the grant's, if it is up to a second ahead
--         of the clock and larger than the last one; 0 for none
--       6 the holds it has once granted; more than 1 only if it has the lock already
--       7 the owner's member in the wait queue, '' if it does not wait
--       8 how many tokens to reserve beside the grant's
--       9 '1' if the owner takes the lock by its own request alone: one that has it already,
--         as by a release, gets a new token, and the reserve. Otherwise absent
--         6 to 9 are absent from a simple request: the first for one hold, without a wait
--         or a reserve. In a shared run each has 3 to 5, and by how many µs its deadline is
--         earlier than that of the run
-- returns  {1, token, n, µs}  granted, and the n tokens after it are reserved; by the
--                          server's clock at µs
--          {0, ms, at}     another owner holds it (ms left, -1: without an end), or it is
--                          left to others for so many ms; the owner is in the wait
--                          queue since before the µs at (0: not)
--          {2, ms, 0}      the key is not a lock of this format
--          {3, 0, 0}       the owner wants a further hold but has none
--          {5, ms, at}     a living one may be behind more dead waiters, which the next run skips

-- include: deadline.lua
-- include: shared.lua

local publish, life, instant = ARGV[1], ARGV[2], micros()

-- Most locks are free and without waiters. This part is for them: it makes the fewest
-- calls and few functions, since making all that are included below would cost as much as
-- several calls. The token is the one of nextToken in token.lua, which has the reasons. A
-- counter that is unlike ours is left to it.
--
-- The counter keeps its life, and gets a new one from the first grant in each half of it.
local requests = #KEYS / 4
if requests > 1 or not ARGV[6] then
  local function grant(i, requests, free, granted, life, now, microsLeft)
    local call, keys, args = redis.call, KEYS, ARGV
    local lock, queue, counter = keys[i], keys[requests + i], keys[2 * requests + i]
    local ttl, owner, proposed, before = args[4 * i - 1], args[4 * i], args[4 * i + 1], args[4 * i + 2]
    if before and microsLeft < tonumber(before) then return 'late' end
    if (not free or granted[lock]) and call('exists', lock, queue) ~= 0 then return 'apart' end
    local token, ahead = now, proposed - now
    if ahead > 0 and ahead <= 1000000 then token = now + ahead end
    token = token - token % 16
    local low = token % 100000000
    local digits, text = string.format('%d%08d', (token - low) / 100000000, low), nil -- see decimal
    if life == '0' then
      text = call('set', counter, digits, 'get')
    else
      text = call('set', counter, digits, 'keepttl', 'get')
    end
    if text then
      local last = #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
      if not last or last % 16 ~= 0 or last >= token then
        call('set', counter, text, 'keepttl')
        return 'apart'
      end
      local half = 500 * life
      if half > 0 and last - last % half ~= token - token % half and call('pttl', counter) >= 0 then
        call('pexpire', counter, life)
      end
    elseif life ~= '0' then
      call('set', counter, digits, 'px', life)
    end
    granted[lock] = true
    call('hset', lock, owner, '1')
    local ends = redis.pcall('pexpire', lock, ttl)
    if ends ~= 1 then -- the user has no right to it: no lock stays without an end
      call('hdel', lock, owner)
      return ends
    end
    return {1, token, 0, now}
  end
  local free = redis.call('exists', unpack(KEYS, 1, 2 * requests)) == 0 -- all locks and wait queues
  local granted = {} -- locks: two requests may be for one
  if requests > 1 then return each(requests, grant, requests, free, granted, life, instant, microsLeft) end
  local reply = grant(1, 1, free, granted, life, instant)
  if reply ~= 'apart' then return reply end
end

-- One request, in every case.
local lock, queue, counter, yieldState = unpack(KEYS)
local _, _, ttl, owner, proposed, count, waiter, reserve, anew = unpack(ARGV)
count, waiter, reserve = count or '1', waiter or '', reserve or '0'

-- Most requests of waiters end in this part, for a lock that another owner of ours holds.

-- include: owner.lua
-- include: wait_queue.lua

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

-- The owner holds the lock, a client that does not enter the wait queue holds it, or it is
-- free and has waiters.

-- include: token.lua
-- include: take.lua
-- include: grant_next.lua
-- include: mutex_yield.lua

-- The token comes first: a server out of memory refuses it before anything has changed.
local function grant()
  local from, ahead = instant, proposed - instant
  if ahead > 0 and ahead <= 1000000 then from = instant + ahead end
  local token, reserved = nextToken(counter, false, life, reserve, from)
  take(lock, owner, '1', ttl)
  return {1, token, reserved, instant}
end

if holder then
  redis.call('zrem', queue, yieldMember) -- the holder has used the yield window
  local sound, seen = pcall(age, yieldState, 'peer')
  if sound and (not seen or seen >= yieldInterval) then pcall(recordPeer, yieldState) end
  return refused(left)
elseif holds then -- hset, which may need memory, comes last: the hold is kept without it
  local token, reserved = nextToken(counter, not anew, life, reserve)
  redis.call('pexpire', lock, ttl)
  redis.call('hset', lock, owner, count)
  if waiter ~= '' then redis.call('zrem', queue, waiter) end
  return {1, token, reserved, instant}
elseif redis.call('exists', queue) == 0 then
  return grant()
end

-- The lock is free, and has waiters. A yield window longer than yieldMillis dates from
-- before the clock was set back.
local closes = tonumber(redis.call('zscore', queue, yieldMember))
if closes then
  local open = closes - micros()
  if open > 0 and open <= 1000 * yieldMillis then return refused(math.ceil(open / 1000)) end
  redis.call('zrem', queue, yieldMember)
end
local sound, open = pcall(yieldRemaining, yieldState, yieldTime)
if sound and open > 0 then
  if not age(yieldState, 'peer') then open = math.min(open, probeAgain) end
  return refused(math.ceil(open / 1000))
end
local others = grantNext(lock, queue, counter, publish, life, waiter)
if others then
  local reply = refused(math.max(others, 1))
  if others == 0 then reply[1] = 5 end
  return reply
end
if waiter ~= '' then redis.call('zrem', queue, waiter) end
return grant()
