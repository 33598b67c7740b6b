-- Tries commands, to find those that the user or the server refuses. Nothing is left
-- behind: KEYS[1] does not exist, and a command that makes it is tried only if the command
-- that removes it was accepted, and is followed by that one.
--
-- KEYS  1 a key that no client uses
-- ARGV  1 a channel that no client uses
--       each of the others: a command with its arguments, in which @ is the key and # the
--       channel, and for a command that makes the key, behind ";", one that removes it
-- returns the number of each refused command and the refusal, one after the other

local refused = {}

local function try(text)
  local words = {}
  for word in string.gmatch(text, '%S+') do
    words[#words + 1] = word == '@' and KEYS[1] or word == '#' and ARGV[1] or word
  end
  local reply = redis.pcall(unpack(words))
  return type(reply) == 'table' and reply.err
end

for i = 2, #ARGV do
  local command, undo = string.match(ARGV[i], '^(.-) ?; ?(.*)$')
  local err = undo and try(undo)
  if not err then
    err = try(command or ARGV[i])
    if undo and not err then try(undo) end
    if err then
      refused[#refused + 1] = i - 2
      refused[#refused + 1] = err
    end
  end
end
return refused
