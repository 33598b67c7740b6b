-- decimal formats an integer in full: Lua's default turns large ones into 1.7e+15. Two
-- halves of it as 32-bit integers take half the time of one '%.0f'.
local function decimal(n)
  if not (n >= 100000000 and n <= 9007199254740992) then return string.format('%.0f', n) end
  local low = n % 100000000
  return string.format('%d%08d', (n - low) / 100000000, low)
end

-- integer parses an integer, which another client may have written. It returns nil for
-- other text, for what the server does not increment, as 07 and -0, for more than 16
-- characters, and from ±2^53 on: there 1 more changes nothing, and a loop up to it never ends.
local function integer(text)
  if not text or #text > 16 or text ~= '0' and not string.find(text, '^%-?[1-9]%d*$') then return nil end
  local n = tonumber(text)
  if math.abs(n) < 9007199254740992 then return n end
end
