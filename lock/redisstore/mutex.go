package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// mutex keeps [lock.KindMutex]: Redisson's RLock.
type mutex struct{}

func (mutex) channel(h *lock.Hold) string { return channelKey(h.Name) }

func (mutex) acquire(ctx context.Context, s *Store, h *lock.Hold) (lock.Answer, error) {
	reply, err := s.run(ctx, acquire,
		[]string{h.Name, tokenKey(h.Name)},
		h.TTL.Milliseconds(), h.Owner, h.Count, s.fenceMillis())
	if err != nil {
		return lock.Answer{}, err
	}
	return answer(reply)
}

// fenceMillis is the life of a fencing counter as scripts take it.
func (s *Store) fenceMillis() int64 { return max(s.config.FenceTTL, 0).Milliseconds() }

// answer reads a script's reply to an acquisition.
func answer(reply any) (lock.Answer, error) {
	code, value, err := pair(reply)
	if err != nil {
		return lock.Answer{}, err
	}
	switch code {
	case 1:
		return lock.Answer{Verdict: lock.Granted, Token: value}, nil
	case 0:
		return lock.Answer{TTL: remaining(value)}, nil
	case 2:
		return lock.Answer{TTL: remaining(value), Foreign: true}, nil
	case 3:
		return lock.Answer{Verdict: lock.NotHeld}, nil
	case 4:
		return lock.Answer{TTL: remaining(value), Behind: true}, nil
	}
	return lock.Answer{}, unexpected(reply)
}

// remaining returns the time that PTTL tells of, zero for a key that never expires.
// In its last millisecond a key has 0 ms left, which is not for ever.
func remaining(pttl int64) time.Duration {
	if pttl < 0 {
		return 0
	}
	return time.Duration(max(pttl, 1)) * time.Millisecond
}

func (m mutex) release(ctx context.Context, s *Store, h *lock.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, release,
		[]string{h.Name, m.channel(h)},
		h.Owner, h.Count, h.TTL.Milliseconds(), publish)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

func (mutex) renewal() *script { return renew }

func (mutex) prolong(c *call, name, owner string, ms int64) {
	c.keys = append(c.keys, name)
	c.args = append(c.args, ms, owner)
}

// freed reads a script's reply to a release: whether the owner had the lock.
func freed(reply any) (held bool, err error) {
	code, ok := reply.(int64)
	if !ok {
		return false, unexpected(reply)
	}
	return code >= 0, nil
}

// pair takes a script's reply of two integers apart.
func pair(reply any) (first, second int64, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 2 {
		return 0, 0, unexpected(reply)
	}
	first, ok1 := list[0].(int64)
	second, ok2 := list[1].(int64)
	if !ok1 || !ok2 {
		return 0, 0, unexpected(reply)
	}
	return first, second, nil
}

// unexpected is the error for a reply that no script of ours gives. The reply
// itself is left out: nobody knows what is in it.
func unexpected(reply any) error {
	return fmt.Errorf("redisstore: a script replied with %T where something else was expected: is there a proxy that alters replies?", reply)
}
