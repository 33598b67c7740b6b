package redisstore

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

var (
	semaphoreAcquire = &transport.Script{Text: lua.File("semaphore_acquire.lua"), Granting: true}
	semaphoreRelease = transport.File("semaphore_release.lua")
	semaphoreForget  = transport.File("semaphore_forget.lua")
	permitsCount     = transport.File("permits_count.lua")
)

// semaphore keeps [driver.KindSemaphore]: Redisson's RSemaphore. Its permits have no
// owners. The server therefore remembers requests, so that a repeated one does not take,
// or give, twice.
type semaphore struct{}

func semaphoreChannel(at key) key { return derive("redisson_sc", at) }

func (semaphore) handlers(_ *Store, at key, _ *driver.Hold) []handler {
	return []handler{{semaphoreChannel(at), askAgain}}
}

func (semaphore) acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error) {
	reply, err := s.run(ctx, semaphoreAcquire,
		[]key{at, requestKey(at, h.Owner)},
		h.Semaphore.Permits, requestMillis(h))
	if err != nil {
		return driver.Answer{}, err
	}
	return shared(reply)
}

// requestMillis is how long a request of the hold is remembered, in ms.
func requestMillis(h *driver.Hold) int64 { return 2 * h.TTL.Milliseconds() }

// shared parses a script's reply to an acquisition without tokens that other owners may
// share: it is the amount left.
func shared(reply any) (driver.Answer, error) {
	a, err := answer(reply)
	if a.Verdict == driver.Granted {
		a.More, a.Token = a.Token > 0, 0
	}
	return a, err
}

func (semaphore) release(ctx context.Context, s *Store, at key, h *driver.Hold) (held bool, err error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return false, err
	}
	owed := 0
	if h.Semaphore.Owed {
		owed = 1
	}
	reply, err := s.run(ctx, semaphoreRelease,
		[]key{at, requestKey(at, h.Owner), semaphoreChannel(at)},
		h.Semaphore.Permits, requestMillis(h), owed, publish, driver.MaxCount)
	if err != nil {
		return false, err
	}
	return freed(reply)
}

func (semaphore) counting(_ *Store, at key, request string) (*transport.Script, []key) {
	return permitsCount, []key{at, semaphoreChannel(at), requestKey(at, request)}
}

// forget shortens the life of the records of answered requests.
func (s *Store) forget(ctx context.Context, c *driver.Count) (driver.Counted, error) {
	at, err := s.names.key(c.Name)
	if err != nil || len(c.Forget) == 0 {
		return driver.Counted{}, err
	}
	records := make([]key, len(c.Forget))
	for i, owner := range c.Forget {
		records[i] = requestKey(at, owner)
	}
	_, err = s.run(ctx, semaphoreForget, records, c.Keep.Milliseconds())
	return driver.Counted{}, err
}
