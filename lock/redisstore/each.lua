-- each calls f for each item, whose keys and arguments are so many, with these, and
-- returns what it returns. An error of one is its own.
local function each(keys, args, f)
  local replies = {}
  for i = 0, #KEYS / keys - 1 do
    local given = {}
    for k = 1, keys do given[k] = KEYS[i * keys + k] end
    for a = 1, args do given[keys + a] = ARGV[i * args + a] end
    local fine, reply = pcall(f, unpack(given))
    if not fine and type(reply) ~= 'table' then reply = {err = tostring(reply)} end
    replies[i + 1] = reply
  end
  return replies
end
