-- Grants a plain lock to an owner if it is free and not left to peers, or if the owner
-- holds it already. Or grants any number of plain locks to one owner each, if they are free
-- and have no yield state: a shared run, see shared.go.
--
-- KEYS  1 the lock, a string: its owner
--       2 its yield state, a hash
--       3 its fencing counter; absent if no token is wanted
-- ARGV  1 the lease in ms
--       2 the owner
--       3 the holds it has once granted; more than 1 only if it has the lock already
--       4 the life of the fencing counter in ms, 0 for no end
--         3 and 4 are absent from a simple request: for one hold without a token. In a shared
--         run each has 1 and 2, and by how many µs its deadline is earlier than that of the run
-- returns  {1, token}  granted; the token is 0 if none is wanted
--          {0, ms}     a leasewheel owner holds it (ms left, -1: without an end), or it is
--                      left to peers for so many ms
--          {2, ms}     the key is not a string
--          {3, 0}      the owner wants a further hold but has none
--          {5, ms}     a peer holds it, which will not publish its release

-- include: deadline.lua
-- include: shared.lua

-- Most locks are free and have no yield state. See acquire.lua.
if #KEYS > 3 or not ARGV[3] then
  local function grant(i, requests, settled, microsLeft)
    local lock, yieldState, ttl, owner, before = KEYS[i], KEYS[requests + i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
    if before and microsLeft < tonumber(before) then return 'late' end
    if not settled and redis.call('exists', yieldState) ~= 0 then return 'apart' end
    local set = redis.pcall('set', lock, owner, 'nx', 'px', ttl)
    if not set or set.err then return 'apart' end -- a server out of memory refuses it for a held lock, too
    return {1, 0}
  end
  local requests = #KEYS / 2
  local settled = redis.call('exists', unpack(KEYS, requests + 1)) == 0 -- no yield state
  if requests > 1 then return each(requests, grant, requests, settled, microsLeft) end
  local reply = grant(1, 1, settled)
  if reply ~= 'apart' then return reply end
end

-- One request, in every case.
local lock, yieldState, counter = unpack(KEYS)
local ttl, owner, count, life = unpack(ARGV)
count = count or '1'

-- include: token.lua
-- include: owner.lua
-- include: plain_yield.lua

local function token(held) return counter and nextToken(counter, held, life) or 0 end

local left = redis.call('pttl', lock)
if left == -2 then
  if count ~= '1' then return {3, 0} end
  local open = yieldRemaining(yieldState, yieldTime)
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
