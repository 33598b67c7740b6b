-- each runs f for each request of a shared run, see shared.go. A request that fails does
-- not affect the others: its reply is the text of the error. f returns 'apart' for one that
-- needs a run of its own, and 'late' for one whose deadline has passed. It has changed nothing
-- then.
local function each(requests, f, ...)
  local replies = {}
  for i = 1, requests do
    local _, reply = pcall(f, i, ...)
    replies[i] = type(reply) == 'table' and reply.err or reply
  end
  return replies
end
