package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
)

const (
	// maxShared is how many holds share an etcd lease, besides those that are requested at once.
	maxShared = 512
	// grantTimeout bounds the grant of an etcd lease, for which several requests may wait. Those that
	// have time left have another one made.
	grantTimeout = 5 * time.Second
)

// class is what a lease is for. Holds of one TTL share leases, but not with anything else: what
// keeps a lease of the store alive must not keep a hold.
type class struct {
	ttl time.Duration
	use use
}

type use uint8

const (
	forHolds   use = iota
	forWaiting     // see Store.waiter
	forRemains     // of records without a hold, and notes
	forSweep       // see Store.sweep
)

// lease is an etcd lease of this store.
type lease struct {
	id clientv3.LeaseID
	class
	least time.Duration // the TTL that etcd counts: its least, if that is more
	key   string

	// Guarded by leases.mu.

	// guard is the revision at which the lease's key was written. A request that grants
	// something by the lease compares it, so that to write the key again is to prevent every
	// such request that is still on its way.
	guard int64
	// end is until when etcd has certainly not ended the lease by itself, by the store's clock.
	end  time.Duration
	dead bool
	// holds are those of this process by the lease, each with its last renewal.
	holds map[hold]time.Duration
}

// hold names one.
type hold struct{ name, owner string }

// leases are the etcd leases of a store.
type leases struct {
	s *Store

	mu      sync.Mutex
	all     map[clientv3.LeaseID]*lease // that may live
	current map[class]*lease            // for the next holds of a TTL
	making  map[class]*making
	of      map[hold]*lease
	// unknown has the leases of steps for a hold that may still be applied.
	unknown map[hold][]*lease
}

// making is a lease that is being granted.
type making struct {
	done chan struct{}
	l    *lease
	err  error
}

func newLeases(s *Store) *leases {
	return &leases{
		s: s, all: make(map[clientv3.LeaseID]*lease), current: make(map[class]*lease),
		making: make(map[class]*making), of: make(map[hold]*lease), unknown: make(map[hold][]*lease),
	}
}

// whole returns a TTL in whole seconds, as etcd counts them.
func whole(ttl time.Duration) (time.Duration, error) {
	if ttl < time.Second {
		return 0, fmt.Errorf("etcdstore: a TTL of %v: etcd counts whole seconds: %w: %w", ttl, driver.ErrUnsupported, driver.ErrNotDone)
	}
	return ttl.Truncate(time.Second), nil
}

// get returns a lease of a class, of which most is left.
func (p *leases) get(ctx context.Context, of class) (*lease, error) {
	return p.until(ctx, of, 0)
}

// after returns a lease for a hold that had another one. It does not end before that one: the
// holder may rely on it, as it may miss the answer.
func (p *leases) after(ctx context.Context, ttl time.Duration, prior clientv3.LeaseID, other bool) (*lease, error) {
	var end time.Duration
	of := class{ttl, forHolds}
	if l := p.own(prior); l != nil && l.class == of {
		if end = p.endOf(l); !other && end-p.s.clock() > ttl*3/4 {
			return l, nil
		}
	}
	l, err := p.until(ctx, of, end)
	if err == nil && l.least > ttl {
		return nil, fmt.Errorf("a TTL of %v, in whole seconds: the cluster's least is %v, one and a half of its election timeout: %w", ttl, l.least, driver.ErrUnsupported)
	}
	return l, err
}

// until returns a lease of a class that does not end before an instant.
func (p *leases) until(ctx context.Context, of class, end time.Duration) (*lease, error) {
	for {
		p.mu.Lock()
		if l := p.current[of]; l != nil && !l.dead && len(l.holds) < maxShared && l.end-p.s.clock() > of.ttl*3/4 && l.end >= end {
			p.mu.Unlock()
			return l, nil
		}
		m := p.make(of)
		p.mu.Unlock()
		select {
		case <-m.done:
			late := errors.Is(m.err, context.DeadlineExceeded) // by grantTimeout: a request has a limit of its own
			if !late && (m.err != nil || p.endOf(m.l) >= end) {
				return m.l, m.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-p.s.ctx.Done():
			return nil, errClosed
		}
	}
}

// make has a lease granted, for all that wait for one of its class. The caller holds mu.
func (p *leases) make(of class) *making {
	m := p.making[of]
	if m == nil {
		m = &making{done: make(chan struct{})}
		p.making[of] = m
		p.s.background(func(ctx context.Context) {
			defer close(m.done)
			ctx, cancel := context.WithTimeout(ctx, grantTimeout)
			defer cancel()
			m.l, m.err = p.grant(ctx, of)
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.making, of)
			if m.err == nil {
				p.current[of] = m.l
			}
		})
	}
	return m
}

// grant makes a lease and its key.
func (p *leases) grant(ctx context.Context, of class) (*lease, error) {
	begin := p.s.clock()
	granted, err := p.s.grant(ctx, of.ttl)
	if err != nil {
		return nil, err
	}
	l := &lease{
		id: granted.ID, class: of, least: time.Duration(granted.TTL) * time.Second,
		key: p.s.keys.lease(granted.ID), end: begin + of.ttl, holds: make(map[hold]time.Duration),
	}
	put, err := p.s.put(ctx, l.key, "", l.id)
	if err != nil {
		p.discard(l)
		return nil, err
	}
	l.guard = put.Header.Revision
	p.mu.Lock()
	first := len(p.all) == 0
	p.all[l.id] = l
	p.mu.Unlock()
	if first { // the first renewal does not wait for a connection
		p.s.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, keepTimeout) // no other round can run meanwhile
			defer cancel()
			p.s.keeper.keep(ctx, nil, nil) //nolint:errcheck // the renewal tries again
		})
	}
	p.s.background(func(ctx context.Context) {
		if p.s.awaitDeletion(ctx, l.key, nil) {
			p.ended(l)
		}
	})
	return l, nil
}

// discard ends a lease that has nothing, rather than at the end of its TTL.
func (p *leases) discard(l *lease) {
	p.s.background(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, grantTimeout)
		defer cancel()
		p.s.client.Revoke(ctx, l.id) //nolint:errcheck // it ends by itself
	})
}

// ended is called when etcd has ended a lease. What holds it has is lost.
func (p *leases) ended(l *lease) {
	p.mu.Lock()
	if l.dead { // several notice it
		p.mu.Unlock()
		return
	}
	l.dead = true
	delete(p.all, l.id)
	for h := range l.holds {
		if p.of[h] == l {
			delete(p.of, h)
		}
	}
	held := len(l.holds) > 0
	p.mu.Unlock()
	if held {
		p.s.lost()
	}
}

// own returns the lease with an id, if it is this store's and may live.
func (p *leases) own(id clientv3.LeaseID) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[id]
}

// alive reports whether a lease is this store's and has certainly not ended by itself.
func (p *leases) alive(id clientv3.LeaseID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.all[id]
	return l != nil && p.s.clock() < l.end
}

// put records that a hold lives by a lease, and was renewed at an instant.
func (p *leases) put(h hold, l *lease, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.of[h]; old != nil {
		delete(old.holds, h)
	}
	p.of[h], l.holds[h] = l, at
}

// has reports whether this process has a hold.
func (p *leases) has(h hold) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of[h] != nil
}

// drop forgets a hold.
func (p *leases) drop(h hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.of[h]; l != nil {
		delete(l.holds, h)
		delete(p.of, h)
	}
}

func (p *leases) endOf(l *lease) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return l.end
}

// left returns for how long etcd certainly keeps a lease, from an instant, a TTL at most.
func (p *leases) left(l *lease, from time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return min(l.end-from, l.ttl)
}

// renewable returns the lease of a hold that is renewed at an instant, if that may suffice. It does not if
// the hold may still move to another one, which need not last as long: a step prevents that.
func (p *leases) renewable(h hold, ttl, at time.Duration) *lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.of[h]
	other := func(by *lease) bool { return by != l && !by.dead }
	if l == nil || l.dead || l.ttl != ttl || slices.ContainsFunc(p.unknown[h], other) {
		return nil
	}
	l.holds[h] = at
	return l
}

// keepable reports whether a lease is to be kept alive. It is not if a hold by it was not renewed for half
// of its TTL: that one would end late.
func (p *leases) keepable(l *lease, at time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, renewed := range l.holds {
		if at-renewed > l.ttl/2 {
			if p.current[l.class] == l {
				delete(p.current, l.class)
			}
			return false
		}
	}
	return !l.dead
}

// kept records a keepalive that was sent at an instant.
func (p *leases) kept(l *lease, sent time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.end = max(l.end, sent+l.ttl)
}

// guards returns the revisions of the leases' keys.
func (p *leases) guards(all []*lease) []int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	revisions := make([]int64, len(all))
	for i, l := range all {
		revisions[i] = l.guard
	}
	return revisions
}

// bumped records that a lease's key was written at a revision.
func (p *leases) bumped(l *lease, revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.guard = max(l.guard, revision)
}

// doubt records that a step for a hold that was requested at an instant may still be applied, by these
// leases.
func (p *leases) doubt(h hold, by []*lease, at time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.unknown, func(_ hold, of []*lease) bool { // those whose leases have ended are certain
		return !slices.ContainsFunc(of, func(l *lease) bool { return !l.dead })
	})
	p.unknown[h] = append(p.unknown[h], by...)
	for _, l := range by { // so that no other hold keeps the lease alive for this one
		if p.of[h] != l {
			l.holds[h] = at
		}
	}
}

// doubtful returns the living leases by which steps for a hold may still be applied.
func (p *leases) doubtful(h hold) (all []*lease) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.unknown[h] {
		if !l.dead && !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	return all
}

// certain records that no step for a hold can be applied any more.
func (p *leases) certain(h hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.unknown[h] {
		if p.of[h] != l {
			delete(l.holds, h)
		}
	}
	delete(p.unknown, h)
}
