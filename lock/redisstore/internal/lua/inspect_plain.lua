-- Describes a plain lock, as inspect does for Redisson's format; or frees it regardless
-- of its holder, and wakes its waiters.
--
-- KEYS  1 the lock, 2 its fencing counter, 3 its channel
-- ARGV  1 the command to publish the release with, '' to release nothing
--       2 '1' to accept only what looks like a lock: it has a TTL, and is an owner of
--         leasewheel's, 16 bytes in base64 as redsync's, or begins with them in base64url
--         as redislock's
-- returns  {'lock', 'none' or the type of a key that is no string,
--           ms left (-1: without an end, -2: no such key), '',
--           1 or 0 holders, {owner, '1', ms left}, 0, {}, fencing token or '', ''}

-- include: deadline.lua
-- include: number.lua
-- include: publish.lua

local lock = KEYS[1]
local token = redis.pcall('get', KEYS[2])
if type(token) ~= 'string' or not integer(token) then token = '' end
local left = redis.call('pttl', lock)
local kind = redis.call('type', lock).ok
if kind ~= 'string' then return {kind, left, '', 0, {}, 0, {}, token, ''} end

local owner, size = redis.call('getrange', lock, 0, 255), redis.call('strlen', lock)
if ARGV[2] == '1' then
  local known = left >= 0 and (string.find(owner, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+$')
    or size == 24 and string.find(owner, '^[%w+/]+==$')
    or string.find(string.sub(owner, 1, 22), '^[%w_-]+$') and #owner >= 22)
  if not known then return {'string', left, '', 0, {}, 0, {}, token, ''} end
end
if ARGV[1] ~= '' then
  redis.call('del', lock)
  send(ARGV[1], KEYS[3], '0')
end
return {'lock', left, '', 1, {owner, '1', decimal(left)}, 0, {}, token, ''}
