-- The part of plain_release.lua for plain locks with waiters of ours. The release has
-- succeeded even if the yield state is broken.
for _, yieldState in ipairs(handed) do pcall(recordHandOff, yieldState) end
return reply
