-- Stores a record unless the stored one has a reply, a larger token or another fingerprint.
--
-- KEYS  1 the record
-- ARGV  1 token, 2 fingerprint, 3 reply, 4 the ms for which it is kept
-- returns  {token, fingerprint, reply} of the record that was stored before; token "0" if none
local previous = redis.call('hmget', KEYS[1], 'token', 'fingerprint', 'reply')
local token, fingerprint, reply = previous[1] or '0', previous[2] or '', previous[3] or ''
local at, next = integer(token), integer(ARGV[1])
if at == 0 or at and reply == '' and at <= next and fingerprint == ARGV[2] then
  -- With a reply the handler has run: a server out of memory refuses hset as the first write alone.
  if ARGV[3] ~= '' then redis.call('pexpire', KEYS[1], ARGV[4]) end
  redis.call('hset', KEYS[1], 'token', ARGV[1], 'fingerprint', ARGV[2], 'reply', ARGV[3])
  redis.call('pexpire', KEYS[1], ARGV[4])
end
return {token, fingerprint, reply}
