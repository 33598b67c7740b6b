-- nextToken increments a fencing counter. It returns the token, and how many tokens after
-- it are reserved for the owner. It comes before the grant, so that there is no grant
-- without a token.
--
-- The counter is never ahead of the clock, unless the clock was set back. So a server
-- that has lost its data makes larger tokens than before. Reserved tokens come from the
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
local largest = 9007199254740976 -- Lua, Go and JavaScript count exactly up to 16 more

-- lastToken parses a counter's text. A damaged counter ends the script, since no token
-- can be made that is larger than the last one.
local function lastToken(counter, text)
  local last = #text <= 16 and string.find(text, '^%d+$') and tonumber(text)
  if last and last < largest then return last end
  error('DAMAGED ' .. counter .. ' holds no whole number below 2^53', 0)
end

local function nextToken(counter, held, life, reserve)
  local left = redis.call('pttl', counter)
  local endless = life == '0' or left == -1
  if held and left ~= -2 then
    local last = lastToken(counter, redis.call('get', counter))
    if last % 16 ~= 0 then
      redis.call('persist', counter)
    elseif not endless then
      redis.call('pexpire', counter, life)
    end
    if last > 0 then return last, 0 end -- 0: no grant was counted yet
  end
  local now = micros()
  now = now - now % 16
  local text, digits = nil, decimal(now)
  if endless then
    text = redis.call('set', counter, digits, 'get')
  else
    text = redis.call('set', counter, digits, 'px', life, 'get')
  end
  if not text then return now, 0 end
  local sound, last = pcall(lastToken, counter, text)
  if not sound then -- restore the counter as it was
    redis.call('set', counter, text)
    if left > 0 then redis.call('pexpire', counter, left) end
    error(last, 0)
  end
  if last % 16 ~= 0 and not endless then redis.call('persist', counter) end
  if last >= now then
    now = last - last % 16 + 16
    redis.call('set', counter, decimal(now), 'keepttl')
    return now, 0
  end
  local token = math.max(last + 1, now - math.min(tonumber(reserve or 0), 10000))
  return token, now - token
end
