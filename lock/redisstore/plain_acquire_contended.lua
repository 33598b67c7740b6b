-- The part of plain_acquire.lua for a plain lock that is held or was contended, and for
-- requests with all arguments.
count = count or '1'

local function token(held) return counter and nextToken(counter, held, life) or 0 end

local left = redis.call('pttl', lock)
if left == -2 then
  if count ~= '1' then return {3, 0} end
  local open = yieldRemaining(yieldState)
  if open > 0 then return {0, math.ceil(open / 1000)} end
  local number = token(false)
  redis.call('set', lock, owner, 'px', ttl)
  return {1, number}
end

local held = redis.pcall('getrange', lock, 0, 127) -- an owner is shorter
if type(held) == 'table' then
  if string.find(held.err, 'WRONGTYPE', 1, true) then return {2, left} end
  return held
elseif held == owner then
  local number = token(true)
  redis.call('pexpire', lock, ttl)
  return {1, number}
elseif count ~= '1' then
  return {3, 0}
elseif isOwner(held) then
  return {0, left}
end
recordPeer(yieldState)
return {5, left}
