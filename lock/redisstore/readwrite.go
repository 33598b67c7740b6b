package redisstore

import (
	"context"

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

// writerField is a writer's field in the lock's hash.
func writerField(owner string) string { return owner + ":write" }

// read keeps [driver.KindRead]: the read side of Redisson's RReadWriteLock.
type read struct{}

func (read) handlers(_ *Store, at key, _ *driver.Hold) []handler {
	return []handler{{readWriteChannel(at), skipRepeated}}
}

func (read) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	reply, err := s.run(ctx, readAcquire,
		[]key{at, tokenKey(at), holdsKey(at, h.Owner), claimKey(at)},
		h.TTL.Milliseconds(), h.Owner, h.Count, s.fenceMillis(), writerField(h.ReadWrite.Under))
	if err != nil {
		return driver.Answer{}, err
	}
	return answer(reply)
}

func (read) release(ctx context.Context, s *Store, at key, h *driver.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, readRelease,
		[]key{at, readWriteChannel(at), holdsKey(at, h.Owner)},
		h.Owner, h.Count, h.TTL.Milliseconds(), publish)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

func (read) renewal() *transport.Script { return readRenew }

func (read) prolong(c *transport.Call, at key, lease *renewal.Item) {
	c.Keys = append(c.Keys, string(at), string(holdsKey(at, lease.Owner)))
	c.Args = append(c.Args, lease.TTL.Milliseconds(), lease.Owner)
}

// write keeps [driver.KindWrite]: the write side of Redisson's RReadWriteLock.
type write struct{}

func (write) handlers(_ *Store, at key, _ *driver.Hold) []handler {
	return []handler{{readWriteChannel(at), skipRepeated}}
}

func (write) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	reply, err := s.run(ctx, writeAcquire,
		[]key{at, tokenKey(at), claimKey(at)},
		h.TTL.Milliseconds(), writerField(h.Owner), h.Count, s.fenceMillis(), h.ReadWrite.BlockReaders.Milliseconds())
	if err != nil {
		return driver.Answer{}, err
	}
	return answer(reply)
}

func (write) release(ctx context.Context, s *Store, at key, h *driver.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, writeRelease,
		[]key{at, readWriteChannel(at), claimKey(at)},
		writerField(h.Owner), h.Count, h.TTL.Milliseconds(), publish)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

func (write) renewal() *transport.Script { return writeRenew }

func (write) prolong(c *transport.Call, at key, lease *renewal.Item) {
	c.Keys = append(c.Keys, string(at))
	c.Args = append(c.Args, lease.TTL.Milliseconds(), writerField(lease.Owner))
}
