-- The grant of a free lock to the first of its wait queue, see wait_queue.lua.

-- include: number.lua
-- include: clock.lua
-- include: token.lua
-- include: take.lua
-- include: listeners.lua

-- waiterOf parses a member of the queue. It returns the owner, its client's id, the
-- provisional ms, the reserve and the secret; or nothing for a member that is no waiter.
-- The length is checked before the pattern, since anyone may have written the member.
local function waiterOf(member)
  if #member > 128 then return end
  local owner, client, provisional, reserve, secret = string.match(member, '^(([^ :]+):[^ :]+) (%d+) (%d+) ?(%w*)$')
  if not owner or #provisional > 15 or tonumber(provisional) == 0 or #reserve > 15 then return end
  return owner, client, provisional, reserve, secret
end

-- ourChannel returns the channel of all leasewheel clients, which with ":<client>" is the
-- channel of one. It matches waitChannel in Go.
local function ourChannel(lock)
  if string.find(lock, '{', 1, true) then return 'leasewheel_lock__channel:' .. lock end
  return 'leasewheel_lock__channel:{' .. lock .. '}'
end

-- grantNext grants a free lock to the first living waiter of the queue. A waiter lives if
-- its client is subscribed on this very server, not on a former master that only repeats
-- what this one publishes. grantNext returns the ms of the grant, and true; or nothing if
-- no waiter is left, or if own comes first, which asks for itself. It skips at most a
-- hundred dead waiters, and returns 0 if there are more, which the next run skips.
--
-- popped  the first member, if it was removed from the queue already
local function grantNext(lock, queue, counter, publish, life, own, popped)
  for _ = 1, 100 do
    popped = popped or redis.call('zpopmin', queue)[1]
    if not popped or popped == own then return end
    local owner, client, provisional, reserve, secret = waiterOf(popped)
    local channel = owner and ourChannel(lock) .. ':' .. client
    if owner and oursListening(publish, channel) > 0 then
      local made, token, reserved = pcall(nextToken, counter, false, life, reserve)
      if not made then return end -- a client that asks gets the reason
      take(lock, owner, '1', provisional)
      sendOurs(publish, channel, table.concat({owner, decimal(token), decimal(micros()), provisional, decimal(reserved), secret}, ' '))
      return tonumber(provisional), true
    end
    popped = nil
  end
  if redis.call('exists', queue) == 1 then return 0 end
end
