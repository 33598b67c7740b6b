-- A zset of members with the ms (Unix time) at which each ends.

-- include: number.lua

-- removeOverdue removes members that have ended, at most a hundred to keep the run of the
-- script short. Later runs remove the rest. It returns how many it has removed, and how
-- many are left.
--
-- counted  is called with how many it removes next, which it certainly may; nil for none
local function removeOverdue(key, now, counted)
  local overdue = redis.call('zcount', key, '-inf', decimal(now))
  local removed = math.min(overdue, 100)
  if removed > 0 and counted then
    redis.call('zremrangebyrank', key, 1, 0) -- it removes none: a user without the right to it is refused here
    counted(removed)
  end
  if removed > 0 then redis.call('zremrangebyrank', key, 0, removed - 1) end
  return removed, overdue - removed
end
