-- Lowers an owner's holds of a plain lock; without holds the lock is free.
-- Or frees any number of plain locks: a shared run, see shared.go.
--
-- KEYS  1 the lock, a string: its owner
--       2 its channel
--       3 its yield state, a hash
-- ARGV  1 the command to publish with
--       2 the owner
--       3 the holds it keeps
--       4 the lease in ms, for a lock that is kept
--         3 and 4 are absent from a simple request: of an owner that keeps no holds
-- returns  1 freed, 0 kept, -1 the owner has no hold

-- include: shared.lua
-- include: publish.lua

local publish = ARGV[1]

local function free(i, requests, publish, calm, count, ttl, handed)
  local lock, channel, yieldState, owner = KEYS[i], KEYS[requests + i], KEYS[2 * requests + i], ARGV[1 + i]
  local held = redis.pcall('getrange', lock, 0, 127) -- an owner is shorter
  if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
  if held ~= owner then return -1 end
  if count and count ~= '0' then
    redis.call('pexpire', lock, ttl)
    return 0
  end
  redis.call('del', lock)
  if send(publish, channel, '0') > 0 then
    handed[#handed + 1] = yieldState
  elseif not calm then
    redis.pcall('hdel', yieldState, 'since')
  end
  return 1
end

local requests = #KEYS / 3
local calm = redis.call('exists', unpack(KEYS, 2 * requests + 1)) == 0 -- no yield state
local handed, reply = {}, nil
if requests > 1 then
  reply = each(requests, free, requests, publish, calm, nil, nil, handed)
else
  reply = free(1, 1, publish, calm, ARGV[3], ARGV[4], handed)
end
if #handed == 0 then return reply end

-- The locks have waiters of ours. The release has succeeded even if the yield state is
-- broken.

-- include: plain_yield.lua

for _, yieldState in ipairs(handed) do pcall(yieldsToPeers, yieldState, yieldTime, yieldTime) end
return reply
