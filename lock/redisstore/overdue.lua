-- A zset of members, each with the ms (Unix time) at which it ends.

-- removeOverdue removes members that have ended, of many the first hundred: a run of a
-- script is short, and later runs remove the rest. It returns how many it has removed,
-- and how many it has left.
local function removeOverdue(key, now)
  local overdue = redis.call('zcount', key, '-inf', decimal(now))
  local removed = math.min(overdue, 100)
  if removed > 0 then redis.call('zremrangebyrank', key, 0, removed - 1) end
  return removed, overdue - removed
end
