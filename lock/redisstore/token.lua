-- nextToken counts a fencing counter up. It returns the token, and how many after it
-- are the owner's as well. It comes before the grant: a grant without a token must not
-- be left behind.
--
-- The counter is never ahead of the clock, unless the clock was set back. So a server
-- that has lost its data makes larger tokens than before. Reserved tokens come from the
-- past: those between the last token and now. They reach back by 10 ms at most, less
-- than a server needs to start from an older file, or a replica to take over.
--
-- A counter of ours is a multiple of 16, and Redisson's fenced locks count up by one. A
-- counter that they were seen to count with has no end from then on: they would begin at
-- 1 again.
--
-- held   somebody holds the lock already, and keeps the token: of an owner to whom
--        several were given the last, as it may not have heard of any
-- life   the life of the counter in ms, '0' for no end
-- spare  how many tokens after this one the owner would like; nil for none
local largest = 9007199254740976 -- Lua, Go and JavaScript count exactly up to 16 more

-- lastToken reads a counter's text. A counter that is damaged ends the script: a
-- larger token than the last one cannot be made.
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
    if last > 0 then return last, 0 end -- from 0 on, somebody has counted no grant yet
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
  if not sound then -- it is left as it was found
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
