package redisstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
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
	renewal() *transport.Script
	// prolong adds one hold's keys and arguments to a call of that script.
	prolong(c *transport.Call, at key, lease *renewal.Item)
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
		item := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: driver.RefOf(h), TTL: h.Keep}}
		s.Renew(ctx, item)
		return item[0].Outcome == renewal.Renewed, item[0].Err
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
	return s.transport.NodeOf(string(at))
}

// Renew prolongs leases, those of a script, and in a cluster of a slot, in one run.
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	s.transport.RunEach(ctx, len(items), func(i int, join func(*transport.Script, string) *transport.Call) {
		lease := &items[i]
		k, err := s.leasedBy(lease.Ref)
		at, unfit := s.names.key(lease.Key)
		if lease.Err = cmp.Or(err, unfit); lease.Err == nil {
			k.prolong(join(k.renewal(), string(at)), at, lease)
		}
	}, func(i int, reply any) { renewed(&items[i], reply) })
}

// leasedBy returns the kind of lock of a lease with that Ref, by default a mutex.
func (s *Store) leasedBy(ref any) (leased, error) {
	k, _, ok := driver.ParseRef(ref)
	if !ok {
		return nil, fmt.Errorf("redisstore: the Ref of a lease is a %T, not that of its hold", ref)
	}
	kept, err := s.kindOf(k)
	if err != nil {
		return nil, err
	}
	if kept, ok := kept.(leased); ok {
		return kept, nil
	}
	return nil, fmt.Errorf("%w: a lease of a %v", driver.ErrUnsupported, k)
}

// renewed stores the script's reply for one lease: a code, the ms for which it was prolonged,
// or an error. A script returns the text of the server's error: an error reply inside an array
// would make go-redis lose its place in the stream, see docs/upstream.md.
func renewed(lease *renewal.Item, reply any) {
	switch reply := reply.(type) {
	case error:
		lease.Err = reply
	case string:
		lease.Err = fault.Classify(fault.Refusal(reply))
	case int64:
		switch {
		case reply > 1:
			lease.Outcome, lease.Given = renewal.Renewed, remaining(reply)
		case reply >= -1:
			lease.Outcome = [...]renewal.Outcome{renewal.Taken, renewal.Gone, renewal.Renewed}[reply+1]
		default:
			lease.Err = fault.Unexpected(reply)
		}
	default:
		lease.Err = fault.Unexpected(reply)
	}
}
