-- Shortens the life of the records of answered requests. They are not deleted yet, since
-- copies of the requests may arrive until their deadlines, and change nothing then.
--
-- KEYS  the records
-- ARGV  1 their life from now in ms
-- returns {1, 0}
for _, record in ipairs(KEYS) do redis.call('pexpire', record, ARGV[1]) end
return {1, 0}
