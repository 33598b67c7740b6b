-- How long a plain lock is left to peers.

-- include: number.lua
-- include: clock.lua
-- include: yield.lua

local yieldTime = 250000

-- recordHandOff records that the lock goes to a leasewheel waiter, or leaves it to peers
-- if the interval is over.
local function recordHandOff(yieldState)
  local streak = age(yieldState, 'since')
  if not streak then
    record(yieldState, 'since', 'since', micros())
  elseif streak >= (age(yieldState, 'peer') and yieldInterval or rareYieldInterval) then
    record(yieldState, 'since', 'until', micros() + yieldTime)
  else
    redis.call('pexpire', yieldState, 600000)
  end
end
