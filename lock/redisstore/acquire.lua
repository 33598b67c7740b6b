-- Grants a mutex to an owner if it is free and no other waiter precedes the owner in the
-- wait queue, or if the owner holds it already.
--
-- KEYS  1 the lock, a hash of owner to holds
--       2 its wait queue
--       3 its fencing counter
--       4 its yield state
-- ARGV  1 the command to publish with
--       2 the life of the fencing counter in ms, 0 for no end
--       3 the lease in ms
--       4 the owner
--       5 the proposed token, a multiple of 16: the grant's, if it is up to a second ahead
--         of the clock and larger than the last one; 0 for none. Or absent
--       6 the holds it has once granted; more than 1 only if it has the lock already
--       7 the owner's member in the wait queue, '' if it does not wait
--       8 how many tokens to reserve beside the grant's
--         6 to 8 are absent from a first request for one hold, without a reserve
-- returns  {1, token, n, µs}  granted, and the n tokens after it are reserved; by the
--                          server's clock at µs
--          {0, ms, at}     another owner holds it (ms left, -1: without an end), or it is
--                          left to others for so many ms; the owner is in the wait
--                          queue since before the µs at (0: not)
--          {2, ms, 0}      the key is not a lock of this format
--          {3, 0, 0}       the owner wants a further hold but has none
local lock, queue, counter, yieldState = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local publish, life, ttl, owner, proposed, count, waiter, reserve = unpack(ARGV)

-- Tokens come from the clock, or from a proposal that is ahead of it.
local from = instant
if proposed then
  local ahead = tonumber(proposed) - instant
  if ahead > 0 and ahead <= 1000000 then from = instant + ahead end
end

-- Most locks are free and without waiters. This part is for them: it makes the fewest
-- calls, and no functions, since making those would cost as much as a call. The token is
-- the one of nextToken in token.lua, which has the reasons. A counter that is unlike ours
-- is left to it.
--
-- The counter keeps its life, and gets a new one from the first grant in each half of it.
if not count and redis.call('exists', lock, queue) == 0 then
  local token = from - from % 16
  local digits, text = string.format('%.0f', token), nil
  if life == '0' then
    text = redis.call('set', counter, digits, 'get')
  else
    text = redis.call('set', counter, digits, 'keepttl', 'get')
  end
  local last = text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if not text or last and last % 16 == 0 and last < token then
    if not text then
      if life ~= '0' then redis.call('pexpire', counter, life) end
    elseif life ~= '0' then
      local half = 500 * life
      if last - last % half ~= token - token % half and redis.call('pttl', counter) >= 0 then
        redis.call('pexpire', counter, life)
      end
    end
    redis.call('hset', lock, owner, 1)
    redis.call('pexpire', lock, ttl)
    return {1, token, 0, instant}
  end
  redis.call('set', counter, text, 'keepttl')
end
