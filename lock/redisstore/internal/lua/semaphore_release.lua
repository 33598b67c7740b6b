-- Gives permits back to a semaphore, once for an owner: those that it has taken, or those
-- that it is known to owe.
--
-- KEYS  1 the count
--       2 the record of this owner's request
--       3 the channel
-- ARGV  1 how many
--       2 for how many ms to keep the record
--       3 '1' if they are owed
--       4 the command to publish with
--       5 the largest count
-- returns  1 given back, -1 no permits to give back, the key is not a count, or the count
--          would be too large

-- include: deadline.lua
-- include: counter.lua

local did = redis.call('get', KEYS[2])
if did == 'given' then return 1 end

-- A server out of memory refuses set, and incrby, unless the script has written before. The first
-- write is pexpire, so that a user without the right to set keeps the record.

local count = countOf(KEYS[1])
local owed = ARGV[3] == '1'
if count == false or not owed and (did ~= 'taken' or not count) then
  -- The record makes a late acquire request take nothing.
  if not owed then
    redis.call('pexpire', KEYS[2], ARGV[2])
    redis.call('set', KEYS[2], 'refused', 'px', ARGV[2])
  end
  return -1
end
if (count or 0) + tonumber(ARGV[1]) > tonumber(ARGV[5]) then return -1 end
redis.call('pexpire', KEYS[2], ARGV[2])
-- It changes nothing: a user without the right to set gives nothing back, one without the right to
-- incrby leaves the record.
redis.call('set', KEYS[2], '', did and 'nx' or 'xx')
local available = redis.call('incrby', KEYS[1], ARGV[1])
redis.call('set', KEYS[2], 'given', 'px', ARGV[2])
announcePermits(ARGV[4], KEYS[3], available)
return 1
