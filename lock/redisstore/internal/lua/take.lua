-- take has an owner hold a free lock, or its own one, for so many ms. The first write changes
-- nothing of a free lock: a user without the right to it takes none without an end. It prolongs a
-- held one, and is allowed when the server is out of memory, as is hset after it.
local function take(lock, owner, count, ms)
  redis.call('pexpire', lock, ms)
  redis.call('hset', lock, owner, count)
  redis.call('pexpire', lock, ms)
end
