package redisstore

import (
	"context"
	_ "embed"

	"github.com/leasewheel/leasewheel/lock"
)

var (
	//go:embed plain_yield.lua
	plainYieldSource string
	//go:embed plain_acquire.lua
	plainAcquireSource string
	//go:embed plain_release.lua
	plainReleaseSource string
	//go:embed plain_renew.lua
	plainRenewSource string

	plainAcquire = newTimelyScript(tokenSource, ownerSource, plainYieldSource, plainAcquireSource)
	plainRelease = newScript(publishSource, plainYieldSource, plainReleaseSource)
	plainRenew   = newTimelyScript(plainRenewSource)
)

// plainMutex keeps [lock.KindMutex] in [FormatPlain]. The string is the owner. How often
// it holds the lock is known to its process alone, which tells absolute counts: the
// store has only to know that it holds it at all.
type plainMutex struct{}

// yieldKey is what leasewheel's clients know of whose turn it is: theirs, who hear
// of each other's releases, or their peers', who ask now and then.
func yieldKey(name string) string { return derive("leasewheel_lock_turns", name) }

// ears is Redisson's channel, on which leasewheel's clients of both formats hear of
// each other.
func (plainMutex) handlers(h *lock.Hold) []handler { return []handler{{channelKey(h.Name), askAgain}} }

func (plainMutex) acquire(ctx context.Context, s *Store, h *lock.Hold) (lock.Answer, error) {
	reply, err := s.run(ctx, plainAcquire, []string{h.Name, tokenKey(h.Name), yieldKey(h.Name)},
		h.TTL.Milliseconds(), h.Owner, h.Count, s.fenceMillis())
	if err != nil {
		return lock.Answer{}, err
	}
	code, left, err := pair(reply)
	if err == nil && code == 5 {
		return lock.Answer{TTL: remaining(left), Silent: true}, nil
	}
	return answer(reply)
}

func (plainMutex) release(ctx context.Context, s *Store, h *lock.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, plainRelease, []string{h.Name, channelKey(h.Name), yieldKey(h.Name)},
		h.Owner, h.Count, h.TTL.Milliseconds(), publish)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

func (plainMutex) renewal() *script { return plainRenew }

func (plainMutex) prolong(c *call, name, owner string, ms int64) {
	c.keys = append(c.keys, name)
	c.args = append(c.args, ms, owner)
}
