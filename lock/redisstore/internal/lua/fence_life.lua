-- eachHeld calls renew with each lock of a renewal, its lease in ms and its owner, and returns
-- the results. If the lock is then held by the owner, its fencing counter lives on, unless it has
-- no end: by the counter, inspection knows since when a lock is held that is renewed for hours.
--
-- KEYS  the locks; behind a lock its fencing counter, if that is to live on
-- ARGV  for each lock: its lease in ms, its owner, the life of its counter in ms, '' for no
--       counter among the keys
local function eachHeld(renew)
  local outcomes, at = {}, 0
  for i = 1, #ARGV, 3 do
    at = at + 1
    local outcome = renew(KEYS[at], ARGV[i], ARGV[i + 1])
    table.insert(outcomes, outcome)
    if ARGV[i + 2] ~= '' then
      at = at + 1
      if outcome == 1 and redis.call('pttl', KEYS[at]) >= 0 then
        redis.call('pexpire', KEYS[at], ARGV[i + 2])
      end
    end
  end
  return outcomes
end
