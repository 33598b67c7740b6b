-- isOwner reports whether a field of a hash, or a waiter, is an owner: "<uuid>:<number>",
-- with a third part if a transaction of Redisson's holds the lock.
local function isOwner(field)
  if #field > 128 then return false end
  local rest = string.match(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%-?%d+(.*)$')
  return rest ~= nil and (rest == '' or string.find(rest, '^:[%x%-]+$') ~= nil)
end

-- anyOwner returns an owner that a hash has as a field, perhaps followed by ':write'; nil
-- if the hash is not a lock. Of many fields it samples a hundred.
local function anyOwner(lock)
  for _, most in ipairs({4, 100}) do
    local fields = redis.call('hrandfield', lock, most)
    for _, field in ipairs(fields) do
      if string.sub(field, -6) == ':write' then field = string.sub(field, 1, -7) end
      if isOwner(field) then return field end
    end
    if #fields < most then return end
  end
end

-- foreign reports whether a hash is not a lock.
local function foreign(lock) return not anyOwner(lock) end

-- isOurs reports whether an owner belongs to a leasewheel client: the id of such a client
-- is a UUID of version 8, of a Redisson client of version 4.
local function isOurs(owner) return string.sub(owner, 15, 15) == '8' end
