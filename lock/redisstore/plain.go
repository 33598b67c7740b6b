package redisstore

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	plainAcquire = &transport.Script{Text: lua.File("plain_acquire.lua"), Granting: true, Common: 0, Own: 2}
	plainRelease = &transport.Script{Text: lua.File("plain_release.lua"), Common: 1, Own: 1}
	plainRenew   = transport.File("plain_renew.lua")
)

// plainMutex keeps [driver.KindMutex] in [FormatPlain]. The string is the owner. Only the
// owner's process knows how often it holds the lock, and sends absolute counts; the store
// knows only whether it holds the lock at all.
type plainMutex struct{}

// yieldKey is the key of the yield state: whether a free lock goes to leasewheel's
// clients, which are notified of releases, or is left to their peers, which poll.
func yieldKey(at key) key { return derive(yieldPrefix, at) }

// handlers is Redisson's channel, on which leasewheel's clients of both formats are
// notified of releases.
func (plainMutex) handlers(_ *Store, at key, _ *driver.Hold) []handler {
	return []handler{{channelKey(at), askAgain}}
}

var (
	plainAcquirePrefixes = []string{yieldPrefix, tokenPrefix} // the latter for locks with tokens
	plainReleasePrefixes = []string{channelPrefix, yieldPrefix}
)

func (plainMutex) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	prefixes := plainAcquirePrefixes
	if !s.config.PlainTokens {
		prefixes = prefixes[:1]
	}
	c := newLockCall(plainAcquire, at, h, prefixes)
	c.Args = append(c.Args, &c.ttl, &c.owner)
	if s.config.PlainTokens || h.Count > 1 {
		c.Args = append(c.Args, h.Count, s.fenceMillis())
	}
	reply, err := s.transport.Run(ctx, &c.Call)
	if err != nil {
		return driver.Answer{}, err
	}
	code, left, err := pair(reply)
	if err == nil && code == 5 {
		return driver.Answer{Wait: remaining(left), Silent: true}, nil
	}
	return answer(reply)
}

func (plainMutex) release(ctx context.Context, s *Store, at key, h *driver.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	c := newLockCall(plainRelease, at, h, plainReleasePrefixes)
	c.publish = publish
	c.Args = append(c.Args, &c.publish, &c.owner)
	if h.Count != 0 {
		c.Args = append(c.Args, h.Count, &c.ttl)
	}
	reply, err := s.transport.Run(ctx, &c.Call)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

func (plainMutex) renewal() *transport.Script { return plainRenew }

func (plainMutex) prolong(c *transport.Call, at key, lease *renewal.Item) {
	c.Keys = append(c.Keys, string(at))
	c.Args = append(c.Args, lease.TTL.Milliseconds(), lease.Owner)
}
