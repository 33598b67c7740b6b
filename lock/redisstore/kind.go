package redisstore

import (
	"context"
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// kind implements one kind of lock. Each has a file of its own, and the two sides of a
// read-write lock have one. A hold has the lock's name, which the server does not know: there
// the lock is at a key.
type kind interface {
	// handlers returns the channels of the hold's waiter.
	handlers(s *Store, at key, h *driver.Hold) []handler
	acquire(ctx context.Context, s *Store, at key, h *driver.Hold) (driver.Answer, error)
	release(ctx context.Context, s *Store, at key, h *driver.Hold) (held bool, err error)
}

// leased is a kind of lock whose holds have leases.
type leased interface {
	kind
	// renewal returns the script that prolongs any number of holds of this kind.
	renewal() *script
	// prolong adds one hold's keys and arguments to a call of that script.
	prolong(c *call, at key, lease *renewal.Item)
}

// kinds are the kinds of lock in Redisson's format; kindOf chooses by the format.
var kinds = map[driver.Kind]kind{
	driver.KindMutex: mutex{},
	driver.KindFair:  fair{},
	driver.KindRead:  read{},
	driver.KindWrite: write{},

	driver.KindSemaphore: semaphore{},
	driver.KindPermit:    permit{},
	driver.KindLatch:     latch{},
}

// leasedKind returns the kind of lock for a lease.
func (s *Store) leasedKind(k driver.Kind) (leased, error) {
	kept, err := s.kindOf(k)
	if err != nil {
		return nil, err
	}
	if kept, ok := kept.(leased); ok {
		return kept, nil
	}
	return nil, fmt.Errorf("%w: a lease of a %v", driver.ErrUnsupported, k)
}

// Supports returns an error for a kind of lock that the store does not keep.
func (s *Store) Supports(k driver.Kind) error {
	_, err := s.kindOf(k)
	return err
}

// Acquire requests the hold, in one round trip.
func (s *Store) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	k, err := s.kindOf(h.Kind)
	if err != nil {
		return driver.Answer{}, err
	}
	at, err := s.names.key(h.Name)
	if err != nil {
		return driver.Answer{}, err
	}
	return k.acquire(ctx, s, at, h)
}

// Release lowers the owner's holds, in one round trip.
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	k, err := s.kindOf(h.Kind)
	if err != nil {
		return false, err
	}
	if h.Count == 0 && h.Keep > 0 {
		return s.keep(ctx, h)
	}
	at, err := s.names.key(h.Name)
	if err != nil {
		return false, err
	}
	return k.release(ctx, s, at, h)
}

// Group returns the address of the cluster's node that keeps the lock called name. It returns
// "" outside a cluster, and for a node that is not known.
func (s *Store) Group(name string, _ any) string {
	at, err := s.names.key(name)
	if err != nil {
		return ""
	}
	return s.nodes.of(at)
}
