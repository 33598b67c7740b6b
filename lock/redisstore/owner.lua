-- isOwner reports whether a field of a lock's hash is an owner: "<uuid>:<int64>",
-- perhaps with a further word, as the writer's of a read-write lock.
local function isOwner(field)
  return #field <= 128 and string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+') ~= nil
end

-- isForeign reports whether a hash is no lock: none of its fields is an owner. Of a
-- large one a part is looked at.
local function isForeign(lock)
  for _, field in ipairs(redis.call('hrandfield', lock, 16)) do
    if isOwner(field) then return false end
  end
  return true
end
