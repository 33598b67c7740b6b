-- include: number.lua
-- include: clock.lua

local largest = 9007199254740976 -- Lua, Go and JavaScript count exactly up to 16 more

-- lastToken parses a counter's text. A damaged counter ends the script, since no token
-- can be made that is larger than the last one.
local function lastToken(counter, text)
  local last = #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if last and last < largest then return last end
  error('DAMAGED ' .. counter .. ' holds no whole number below 2^53', 0)
end

-- nextToken increments a fencing counter. It returns the token, and how many tokens after
-- it are reserved for the owner. It comes before the grant, so that there is no grant
-- without a token.
--
-- The counter of a single server is never ahead of its clock, unless the clock was set
-- back. So a server that has lost its data makes larger tokens than before. Of several
-- servers whose tokens agree, a counter may be ahead by a second. Reserved tokens come from the
-- past: those between the last token and now. They reach back by 10 ms at most, less than
-- a server needs to start from an older file, or a replica to take over.
--
-- A counter of ours is a multiple of 16, while Redisson's fenced locks count up by one. A
-- counter that Redisson was seen to use never expires from then on: Redisson would begin
-- at 1 again.
--
-- held     the lock is held already, and keeps its token. An owner with reserved tokens
--          gets the last of them, since it may have received none
-- life     the life of the counter in ms, '0' for no end
-- reserve  how many tokens after this one to reserve at most; nil for none
-- from     the instant to count from in place of the clock's; nil for the clock's
local function nextToken(counter, held, life, reserve, from)
  -- prolong lets the counter live from now on, unless it has no end.
  local function prolong(last)
    if last % 16 ~= 0 then
      redis.call('persist', counter)
    elseif life ~= '0' and redis.call('pttl', counter) >= 0 then
      redis.call('pexpire', counter, life)
    end
  end
  local text = held and redis.call('get', counter)
  if text then
    local last = lastToken(counter, text)
    prolong(last)
    if last > 0 then return last, 0 end -- 0: no grant was counted yet
  end
  local now = from or micros()
  now = now - now % 16
  text = redis.call('set', counter, decimal(now), 'keepttl', 'get')
  if not text then
    -- No pexpire: a counter that a user without the right to it has made would have no end.
    if life ~= '0' then redis.call('set', counter, decimal(now), 'px', life) end
    return now, 0
  end
  local sound, last = pcall(lastToken, counter, text)
  if not sound then
    redis.call('set', counter, text, 'keepttl')
    error(last, 0)
  end
  -- The first grant in each half of the life prolongs it, see acquire.lua.
  local half = 500 * life
  if last % 16 ~= 0 or half > 0 and last - last % half ~= now - now % half then prolong(last) end
  if last >= now then
    now = last - last % 16 + 16
    redis.call('set', counter, decimal(now), 'keepttl')
    return now, 0
  end
  local token = math.max(last + 1, now - math.min(tonumber(reserve or 0), 10000))
  return token, now - token
end
