-- Counts the messages.
--
-- returns  {now, ready, delayed, leased, dead, first due time or -1, first death or -1};
--          a message whose lease has ended is ready, and due since then

-- include: queue.lua

local ready = call('zcount', due, '-inf', number(now))
local outlived = call('zcount', leased, '-inf', number(now))
local first = head(due)
if outlived > 0 then first = math.min(first or math.huge, head(leased)) end
return {
  number(now), ready + outlived, call('zcard', due) - ready, call('zcard', leased) - outlived, call('zcard', dead),
  number(first or -1), number(head(dead) or -1),
}
