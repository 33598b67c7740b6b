package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
	"github.com/leasewheel/leasewheel/renewal"
)

// kind is one kind of lock in one format. Each has a file of its own, with its scripts and
// keys, and the two sides of a read-write lock have one.
type kind struct {
	// handlers returns the channels of the hold's waiter.
	handlers func(r request) []handler

	acquire func(r request) (*transport.Call, error)
	// answer parses the reply of that.
	answer func(reply any, h *driver.Hold) (driver.Answer, error)
	// release is nil for a kind whose holds take nothing.
	release func(r request) (*transport.Call, error)

	// renew is the script that prolongs any number of holds; nil for holds without leases.
	renew *transport.Script
	// prolong adds the keys and arguments of one hold to a call of it.
	prolong func(s *Store, c *transport.Call, at key, lease *renewal.Item)

	// counter is the script that reads and changes the count; nil for a kind without one.
	counter *transport.Script
	// counting returns its keys: the lock, the channel, the record of a request's outcome.
	counting func(s *Store, at key, request string) []key

	trace  *trace // by which locks are found; nil if that of another kind suffices
	rights rights
}

// kind returns a kind of lock in the store's format.
func (s *Store) kind(as driver.Kind) (*kind, error) {
	switch {
	case int(as) >= len(kinds):
		return nil, fmt.Errorf("%w: %v: %w", driver.ErrUnsupported, as, driver.ErrNotDone)
	case int(as) >= len(s.format.kinds):
		return nil, fmt.Errorf("%w: no %v in a plain string; use the format %v, under another name: %w", driver.ErrUnsupported, as, FormatRedisson, driver.ErrNotDone)
	}
	return s.format.kinds[as], nil
}

// request is what a kind makes a call from. A hold has the lock's name, which the server
// does not know: there the lock is at a key.
type request struct {
	*driver.Hold
	store   *Store
	at      key
	publish string // see messages.publishing
	token   int64  // proposed, see driver.Fencer
}

// request returns a request for a lock, and its kind.
func (s *Store) request(ctx context.Context, as driver.Kind, name string) (r request, k *kind, err error) {
	if k, err = s.kind(as); err != nil {
		return r, nil, err
	}
	r.store = s
	if r.publish, err = s.messages.publishing(ctx); err != nil {
		return r, nil, err
	}
	r.at, err = s.names.key(name)
	return r, k, err
}

// newCall returns the call of a script.
func newCall(sc *transport.Script, keys []key, args ...any) *transport.Call {
	c := &transport.Call{Script: sc, Keys: make([]any, len(keys)), Args: args}
	for i := range keys {
		c.Keys[i] = (*string)(&keys[i])
	}
	return c
}

// Supports returns an error for a kind of lock that the store does not keep.
func (s *Store) Supports(k driver.Kind) error {
	_, err := s.kind(k)
	return err
}

// Acquire requests the hold, in one round trip.
func (s *Store) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	a, _, err := s.AcquireProposing(ctx, h, 0)
	return a, err
}

var _ driver.Fencer = (*Store)(nil)

// AcquireProposing is Acquire, and proposes the token of a mutex. A mutex in [FormatPlain]
// ignores it.
func (s *Store) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (a driver.Answer, clock time.Time, err error) {
	r, k, err := s.request(ctx, h.Kind, h.Name)
	if err != nil {
		return a, clock, err
	}
	r.Hold, r.token = h, token
	c, err := k.acquire(r)
	if err != nil {
		return a, clock, err
	}
	reply, err := s.transport.Run(ctx, c)
	if err != nil {
		return a, clock, err
	}
	if a, err = k.answer(reply, h); k == &mutex && a.Verdict == driver.Granted {
		clock = clockOf(reply)
	}
	return a, clock, err
}

// Release lowers the owner's holds, in one round trip.
func (s *Store) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	if h.Count == 0 && h.Keep > 0 {
		item := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: driver.RefOf(h), TTL: h.Keep}}
		s.Renew(ctx, item)
		return item[0].Outcome == renewal.Renewed, item[0].Err
	}
	r, k, err := s.request(ctx, h.Kind, h.Name)
	if err != nil || k.release == nil {
		return err == nil, err
	}
	r.Hold = h
	c, err := k.release(r)
	if err != nil {
		return false, err
	}
	reply, err := s.transport.Run(ctx, c)
	if err != nil {
		return false, err
	}
	code, ok := reply.(int64)
	if !ok {
		return false, fault.Unexpected(reply)
	}
	return code >= 0, nil
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
		as, _, ok := driver.ParseRef(lease.Ref) // by default a mutex
		k, err := s.kind(as)
		switch {
		case !ok:
			err = fmt.Errorf("redisstore: the Ref of a lease is a %T, not that of its hold", lease.Ref)
		case err == nil && k.renew == nil:
			err = fmt.Errorf("%w: a lease of a %v", driver.ErrUnsupported, as)
		}
		at, unfit := s.names.key(lease.Key)
		if lease.Err = cmp.Or(err, unfit); lease.Err == nil {
			k.prolong(s, join(k.renew, string(at)), at, lease)
		}
	}, func(i int, reply any) { renewed(&items[i], reply) })
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
