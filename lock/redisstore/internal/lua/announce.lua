-- Records a client's identity, for people who look at the server.
--
-- KEYS  1 the client's record
-- ARGV  1 its time to live in ms, 2 host, 3 process, 4 pid, 5 since (RFC 3339),
--          6 label
-- returns 1
redis.call('hset', KEYS[1], 'host', ARGV[2], 'process', ARGV[3], 'pid', ARGV[4], 'since', ARGV[5], 'label', ARGV[6])
return redis.call('pexpire', KEYS[1], ARGV[1])
