-- Writes keys that no client uses, for half a minute at most.
--
-- KEYS  the keys
for _, key in ipairs(KEYS) do
  redis.call('hset', key, 'x', '1')
  redis.call('pexpire', key, '30000')
end
return 1
