package redisstore

import (
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	readAcquire  = &transport.Script{Text: lua.File("read_acquire.lua"), Granting: true}
	readRelease  = transport.File("read_release.lua")
	readRenew    = transport.File("read_renew.lua")
	writeAcquire = &transport.Script{Text: lua.File("write_acquire.lua"), Granting: true}
	writeRelease = transport.File("write_release.lua")
	writeRenew   = transport.File("write_renew.lua")
)

// skipRepeated makes a waiter ask again, except for the second message of a release,
// which is for Redisson alone, see publish_all.lua.
func skipRepeated(payload string) (n driver.Notice, ok bool) { return n, payload != "00" }

func readWriteChannel(at key) key { return derive("redisson_rwlock", at) }

// claimKey is the key by which a waiting writer keeps new readers out.
func claimKey(at key) key { return derive("leasewheel_lock_claim", at) }

// holdsTag is the prefix of the keys of all readers' holds of a lock.
func holdsTag(at key) key {
	if tagged(at) {
		return at
	}
	return "{" + at + "}"
}

// holdsKey is the prefix of the keys of one reader's holds. They end in ":1", ":2" and so
// on.
func holdsKey(at key, owner string) key {
	return holdsTag(at) + ":" + key(owner) + ":rwlock_timeout"
}

// firstHold ends the key of a reader's first hold, see [holdsKey].
const firstHold = ":1"

// writerField is a writer's field in the lock's hash.
func writerField(owner string) string { return owner + ":write" }

func readWriteHandlers(r request) []handler {
	return []handler{{readWriteChannel(r.at), skipRepeated}}
}

// read keeps [driver.KindRead]: the read side of Redisson's RReadWriteLock.
var read = kind{
	handlers: readWriteHandlers,
	acquire: func(r request) (*transport.Call, error) {
		return newCall(readAcquire,
			[]key{r.at, tokenKey(r.at), holdsKey(r.at, r.Owner), claimKey(r.at)},
			r.TTL.Milliseconds(), r.Owner, r.Count, r.store.fenceMillis, writerField(r.ReadWrite.Under)), nil
	},
	answer: answer,
	release: func(r request) (*transport.Call, error) {
		return newCall(readRelease,
			[]key{r.at, readWriteChannel(r.at), holdsKey(r.at, r.Owner)},
			r.Owner, r.Count, r.TTL.Milliseconds(), r.publish), nil
	},
	renew: readRenew,
	prolong: func(_ *Store, c *transport.Call, at key, lease *renewal.Item) {
		// The key of the first hold is there as long as the reader has holds: while a cluster moves
		// a slot, it runs no script of several keys of which one is missing.
		c.Keys = append(c.Keys, string(at), string(holdsKey(at, lease.Owner)+firstHold))
		c.Args = append(c.Args, lease.TTL.Milliseconds(), lease.Owner)
	},
	rights: rights{
		flag: "read-write", name: "read-write locks",
		scripts: []*transport.Script{readAcquire, readRelease, readRenew},
		reached: readWriteReaches,
	},
}

func readWriteReaches(of subject) (keys, channels []key) {
	holds := holdsKey(of.at, string(of.owner))
	return []key{holds, holds + ":*", claimKey(of.at), readWriteChannel(of.at)}, []key{readWriteChannel(of.at)}
}

// write keeps [driver.KindWrite]: the write side of Redisson's RReadWriteLock.
var write = kind{
	handlers: readWriteHandlers,
	acquire: func(r request) (*transport.Call, error) {
		return newCall(writeAcquire,
			// No key has the name of the channel, so a cluster refuses the script while it moves the slot:
			// the script looks for keys of readers, which may be on the other master.
			[]key{r.at, tokenKey(r.at), claimKey(r.at), readWriteChannel(r.at)},
			r.TTL.Milliseconds(), writerField(r.Owner), r.Count, r.store.fenceMillis, r.ReadWrite.BlockReaders.Milliseconds()), nil
	},
	answer: answer,
	release: func(r request) (*transport.Call, error) {
		return newCall(writeRelease,
			[]key{r.at, readWriteChannel(r.at), claimKey(r.at)},
			writerField(r.Owner), r.Count, r.TTL.Milliseconds(), r.publish), nil
	},
	renew: writeRenew,
	prolong: func(s *Store, c *transport.Call, at key, lease *renewal.Item) {
		s.prolongAs(c, at, lease, writerField(lease.Owner))
	},
	rights: rights{
		flag:    "read-write",
		scripts: []*transport.Script{writeAcquire, writeRelease, writeRenew},
		reached: readWriteReaches,
	},
}
