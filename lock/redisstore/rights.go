package redisstore

import (
	"crypto/rand"
	"encoding/hex"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/check"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// uses returns what a user of this store needs at the key of a lock, and what other kinds of
// lock add.
func (s *Store) uses(at key) []check.Use {
	mutexes := check.Use{
		Name: "mutexes", Needed: true,
		Commands: []string{
			"set @ x xx", // the first to write: once a script has, a server out of memory refuses nothing
			"hget @ x", "hdel @ x", "hset @ x 1 ; hdel @ x", "hexists @ x", "hrandfield @", "get @", "exists @", "pexpire @ 1", "pttl @", "persist @", "time",
			"zadd @ xx 1 x", "zpopmin @", "zrem @ x", "zscore @ x", "publish # x", "pubsub numsub #",
		},
		Keys: texts(
			at, tokenKey(at), waitQueueKey(at), yieldKey(at), clientKey(transport.HashTag(string(at))),
			channelKey(at), waitChannel(at), // scripts get channels as keys, too
		),
		Channels: texts(channelKey(at), waitChannel(at), waitChannel(at)+":"+noClient),
	}
	if s.config.Format == FormatPlain {
		mutexes.Name, mutexes.Flag = "plain locks", " --plain"
		mutexes.Commands = append(mutexes.Commands, "del @", "getrange @ 0 0")
		return []check.Use{mutexes}
	}
	return []check.Use{
		mutexes,
		{
			Name: "fair locks", Flag: " --fair",
			Commands: []string{
				"lindex @ 0", "llen @", "lpop @", "lpos @ x", "lpush @ x ; lpop @", "lrem @ 0 x", "rpush @ x ; lpop @", "unlink @",
				"zcount @ 0 0", "zmscore @ x", "zrange @ 0 0", "zrangebyscore @ 0 0", "zremrangebyrank @ 0 0",
			},
			Keys:     texts(queueKey(at), timeoutsKey(at), placesKey(at)),
			Channels: texts(channelKey(at) + ":" + noClient + ":1"),
		},
		{
			Name: "read-write locks", Flag: " --read-write",
			Commands: []string{"del @", "hlen @", "type @", "unlink @"},
			Keys:     texts(holdsKey(at, noClient+":1"), claimKey(at), readWriteChannel(at)),
			Channels: texts(readWriteChannel(at)),
		},
		{
			Name: "semaphores and latches", Flag: " --semaphore",
			Commands: []string{
				"type @", "del @", "getrange @ 0 0", "incrby @ 1 ; del @", "decrby @ 1 ; del @",
				"zcount @ 0 0", "zrange @ 0 0", "zremrangebyrank @ 0 0",
			},
			Keys:     texts(requestKey(at, noClient+":1"), permitsKey(at), semaphoreChannel(at), latchChannel(at)),
			Channels: texts(semaphoreChannel(at), latchChannel(at)),
		},
	}
}

// noClient is an id that no client has. Rights to keys and channels of one client depend on
// the form of an id.
const noClient = "00000000-0000-0000-0000-000000000000"

// unusedKeys returns keys of locks whose names begin with prefix, and that no client uses. In a
// cluster the node has their slots. It returns nil if there are none, or if several would have
// one hash tag, which keeps them together.
func (s *Store) unusedKeys(prefix, node string, several int) (keys []string) {
	for range 1000 * several {
		var random [8]byte
		_, _ = rand.Read(random[:]) // never fails
		at, err := s.names.key(prefix + ":check-" + hex.EncodeToString(random[:]))
		if err != nil || driver.ValidateName(string(at)) != nil || len(keys) > 0 && transport.HashTag(string(at)) == transport.HashTag(keys[0]) {
			return nil
		}
		if s.cluster != nil && s.transport.NodeOf(string(at)) != node {
			continue
		}
		if keys = append(keys, string(at)); len(keys) == several {
			return keys
		}
	}
	return nil
}

// texts returns keys as the check takes them.
func texts(keys ...key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = string(k)
	}
	return all
}
