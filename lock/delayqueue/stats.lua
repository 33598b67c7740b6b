-- Counts.
--
-- returns  {now, ready, delayed, leased, dead, first due time or -1, first end of a
--          lease or -1, first death or -1}
local ready = call('zcount', due, '-inf', number(now))
return {
  number(now), ready, call('zcard', due) - ready, call('zcard', leased), call('zcard', dead),
  number(head(due) or -1), number(head(leased) or -1), number(head(dead) or -1),
}
