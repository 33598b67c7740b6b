-- include: queue.lua

-- describe returns a message as {id, state, at, attempt, token, put, due, error}; at is its
-- score in the zset of its state.
local function describe(id)
  local r = read(id)
  if not r then return nil end
  local state, at = 'dead', call('zscore', dead, id)
  if not at then state, at = 'leased', held(id) end
  if not at then state, at = 'due', call('zscore', due, id) end
  return {id, state, number(bounded(at, latestDue) or 0), number(r.attempt), number(r.token), number(r.put), number(r.due), r.err}
end
