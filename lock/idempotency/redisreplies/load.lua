-- Reads a record.
--
-- KEYS  1 the record
-- returns  {token, fingerprint, reply}; token "0" if there is none
local record = redis.call('hmget', KEYS[1], 'token', 'fingerprint', 'reply')
return {record[1] or '0', record[2] or '', record[3] or ''}
