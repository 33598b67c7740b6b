-- Tries commands, to find those that the user or the server refuses. Nothing is left
-- behind: KEYS[1] does not exist, and a command that makes it is tried only if the command
-- that removes it was accepted, and is followed by that one.
--
-- KEYS  1 a key that no client uses
-- ARGV  1 a channel that no client uses
--       each of the others: a command, as in a rule of an ACL
-- returns each refused command and its refusal, one after the other

-- Each command has arguments that change nothing, in which @ is the key and # the channel. Behind
-- one that makes the key, and ";", is one that removes it. The first one writes: once a script
-- has written, a server out of memory refuses nothing.
local trials = {
  'set @ x xx', 'get @', 'exists @', 'pexpire @ 1', 'pttl @', 'persist @', 'type @', 'del @', 'unlink @', 'time',
  'getrange @ 0 0', 'incrby @ 1 ; del @', 'decrby @ 1 ; del @',
  'hget @ x', 'hdel @ x', 'hset @ x 1 ; hdel @ x', 'hexists @ x', 'hrandfield @', 'hlen @',
  'lindex @ 0', 'llen @', 'lpop @', 'lpos @ x', 'lpush @ x ; lpop @', 'lrem @ 0 x', 'rpush @ x ; lpop @',
  'zadd @ xx 1 x', 'zpopmin @', 'zrem @ x', 'zscore @ x', 'zmscore @ x', 'zcount @ 0 0', 'zrange @ 0 0',
  'zrangebyscore @ 0 0', 'zremrangebyrank @ 0 0',
  'publish # x', 'spublish # x', 'pubsub numsub #', 'pubsub shardnumsub #',
}

local wanted, refused = {}, {}
for i = 2, #ARGV do
  wanted[ARGV[i]] = true
end

local function try(text)
  local words = {}
  for word in string.gmatch(text, '%S+') do
    words[#words + 1] = word == '@' and KEYS[1] or word == '#' and ARGV[1] or word
  end
  local reply = redis.pcall(unpack(words))
  return type(reply) == 'table' and reply.err
end

for _, trial in ipairs(trials) do
  local name = string.gsub(string.match(trial, '^pubsub %w+') or string.match(trial, '^%w+'), ' ', '|')
  if wanted[name] then
    local command, undo = string.match(trial, '^(.-) ; (.*)$')
    local err = undo and try(undo)
    if not err then
      err = try(command or trial)
      if undo and not err then try(undo) end
      if err then
        refused[#refused + 1] = name
        refused[#refused + 1] = err
      end
    end
  end
end
return refused
