-- A zset of members with the ms (Unix time) at which each ends.

-- include: number.lua

-- removeOverdue removes members that have ended, at most a hundred to keep the run of the
-- script short. Later runs remove the rest. It returns how many it has removed, and how
-- many are left.
local function removeOverdue(key, now)
  local overdue = redis.call('zcount', key, '-inf', decimal(now))
  local removed = math.min(overdue, 100)
  if removed > 0 then redis.call('zremrangebyrank', key, 0, removed - 1) end
  return removed, overdue - removed
end
