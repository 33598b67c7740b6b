-- each calls f for each lock with its keys and its arguments, and returns what it
-- returns. An error of one is its own. KEYS has the first key of each lock, then the
-- second of each, then the third; ARGV has two that hold for all, then five of each.
local function each(f)
  local KEYS, ARGV, replies = KEYS, ARGV, {}
  local n = #KEYS / 3
  for i = 1, n do
    local a = 5 * i - 3
    local fine, reply = pcall(f, KEYS[i], KEYS[n + i], KEYS[2 * n + i],
      ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5])
    if not fine and type(reply) ~= 'table' then reply = {err = tostring(reply)} end
    replies[i] = reply
  end
  return replies
end
