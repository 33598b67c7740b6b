package quorum_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// booth is a store of mutexes in memory, with any fate of its requests. It does not know
// of quorums.
type booth struct {
	// skew is how far its clock is ahead, fast the rate at which its TTLs run.
	skew time.Duration
	fast float64

	mu sync.Mutex
	// way returns the fate of a request; nil: no mishap. It is called with mu held.
	way          func(request string, h *driver.Hold) mishap
	locks        map[string]*possession
	counters     map[string]int64
	listen       map[*listener]struct{}
	acquisitions int
	damaged      bool          // its counters were damaged, and count up all the same
	deaf         bool          // its messages are lost
	slow         time.Duration // how long its messages take
}

type possession struct {
	owner string
	count int64
	ends  time.Time
}

// mishap is the fate of one request.
type mishap struct {
	there, back time.Duration // how long it takes, and its reply
	lost        bool          // it never arrives
	mute        bool          // its reply never does
	err         error         // it is refused
	panics      bool          // the client does
	returning   func()        // called as its reply returns; nil: nothing is
}

// errOut is the error of a node that cannot be reached: nothing was done.
var errOut = fmt.Errorf("out: %w, %w", driver.ErrUnavailable, driver.ErrNotDone)

// errMute is the error of a client that gets no answer.
var errMute = fmt.Errorf("no answer: %w", driver.ErrUnavailable)

func newBooth() *booth {
	return &booth{fast: 1, locks: map[string]*possession{}, counters: map[string]int64{}, listen: map[*listener]struct{}{}}
}

// carry runs serve at the booth, and returns its result if that is back before ctx ends.
func (b *booth) carry(ctx context.Context, request string, h *driver.Hold, serve func()) error {
	var m mishap
	b.mu.Lock()
	if b.way != nil {
		m = b.way(request, h)
	}
	b.mu.Unlock()
	if m.panics {
		panic("oops")
	}
	if m.err != nil {
		return m.err
	}
	back := make(chan struct{})
	by, bounded := ctx.Deadline()
	if !m.lost {
		go func() {
			time.Sleep(m.there)
			if bounded && time.Now().After(by.Add(time.Second)) {
				return // by the contract of driver.Store
			}
			b.mu.Lock()
			serve()
			b.mu.Unlock()
			if m.mute {
				return
			}
			time.Sleep(m.back)
			close(back)
		}()
	}
	select {
	case <-back:
		if m.returning != nil {
			m.returning()
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errMute, ctx.Err())
	}
}

// held returns the lock's owner. The caller holds mu.
func (b *booth) held(name string) *possession {
	p := b.locks[name]
	if p != nil && !time.Now().Before(p.ends) {
		delete(b.locks, name)
		return nil
	}
	return p
}

func (b *booth) ends(ttl time.Duration) time.Time {
	return time.Now().Add(time.Duration(float64(ttl) / b.fast))
}

func (b *booth) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	answer, _, err := b.AcquireProposing(ctx, h, 0)
	return answer, err
}

func (b *booth) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (_ driver.Answer, clock time.Time, err error) {
	hold := *h
	var served driver.Answer
	var servedAt time.Time
	err = b.carry(ctx, "acquire", h, func() {
		b.acquisitions++
		p := b.held(hold.Name)
		switch {
		case p != nil && p.owner != hold.Owner && hold.Count == 1:
			served = driver.Answer{Verdict: driver.Refused, Wait: time.Until(p.ends)}
			return
		case (p == nil || p.owner != hold.Owner) && hold.Count > 1:
			served = driver.Answer{Verdict: driver.NotHeld}
			return
		case p == nil:
			p = &possession{owner: hold.Owner}
			b.locks[hold.Name] = p
			clock := time.Now().Add(b.skew).UnixMicro()
			servedAt = time.UnixMicro(clock)
			if ahead := token - clock; ahead > 0 && ahead <= time.Second.Microseconds() {
				clock = token
			}
			if b.counters[hold.Name]++; !b.damaged {
				b.counters[hold.Name] = max(b.counters[hold.Name], clock)
			}
		}
		p.count, p.ends = hold.Count, b.ends(hold.TTL)
		served.Verdict, served.Token = driver.Granted, b.counters[hold.Name]
	})
	if err != nil {
		return driver.Answer{}, clock, err
	}
	return served, servedAt, nil
}

func (b *booth) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	hold := *h
	var served bool
	err = b.carry(ctx, "release", h, func() {
		p := b.held(hold.Name)
		if p == nil || p.owner != hold.Owner {
			return
		}
		served = true
		if hold.Keep > 0 {
			p.ends = b.ends(hold.Keep)
			return
		}
		if p.count = hold.Count; p.count > 0 {
			p.ends = b.ends(hold.TTL)
			return
		}
		delete(b.locks, hold.Name)
		b.ring(hold.Name)
	})
	return err == nil && served, err
}

func (b *booth) Group(string, any) string { return "" }

func (b *booth) Renew(ctx context.Context, items []renewal.Item) {
	outcomes := make([]renewal.Outcome, len(items))
	leases := slices.Clone(items)
	err := b.carry(ctx, "renew", &driver.Hold{Kind: leases[0].Ref.(driver.Kind), Name: leases[0].Key, Owner: leases[0].Owner, TTL: leases[0].TTL}, func() {
		for i, lease := range leases {
			switch p := b.held(lease.Key); {
			case p == nil:
				outcomes[i] = renewal.Gone
			case p.owner != lease.Owner:
				outcomes[i] = renewal.Taken
			default:
				p.ends = b.ends(lease.TTL)
				outcomes[i] = renewal.Renewed
			}
		}
	})
	for i := range items {
		if items[i].Err = err; err == nil {
			items[i].Outcome = outcomes[i]
		}
	}
}

func (b *booth) Fence(ctx context.Context, h *driver.Hold, token int64) (held bool, err error) {
	hold := *h
	var served bool
	err = b.carry(ctx, "fence", h, func() {
		p := b.held(hold.Name)
		if served = p != nil && p.owner == hold.Owner; served {
			b.counters[hold.Name] = max(b.counters[hold.Name], token)
		}
	})
	return err == nil && served, err
}

func (b *booth) Supports(k driver.Kind) error {
	if k == driver.KindMutex {
		return nil
	}
	return driver.ErrUnsupported
}

// listener is a subscription.
type listener struct {
	at     *booth
	name   string
	notify func(driver.Notice)
	closed bool // guarded by mu of at
}

func (b *booth) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	l := &listener{at: b, name: h.Name, notify: notify}
	if err := b.carry(ctx, "subscribe", h, func() {
		if !l.closed { // by a caller that had given up before it arrived
			b.listen[l] = struct{}{}
		}
	}); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func (l *listener) Close() {
	l.at.mu.Lock()
	defer l.at.mu.Unlock()
	l.closed = true
	delete(l.at.listen, l)
}

// ring notifies the lock's listeners. The caller holds mu.
func (b *booth) ring(name string) {
	for l := range b.listen {
		switch {
		case l.name != name || b.deaf:
		case b.slow > 0:
			time.AfterFunc(b.slow, func() { l.notify(driver.Notice{}) })
		default:
			l.notify(driver.Notice{})
		}
	}
}

// hush has messages be lost. Afterwards listeners are notified that some may have been.
func (b *booth) hush(deaf bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deaf = deaf; !deaf {
		b.ring("a")
	}
}

func (b *booth) Announce(ctx context.Context, c driver.Client, _ time.Duration) error {
	return b.carry(ctx, "announce", &driver.Hold{Name: c.ID}, func() {})
}

func (b *booth) Close() error { return nil }

// muted reports whether its messages are lost.
func (b *booth) muted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deaf
}

// set sets the fate of requests from now on.
func (b *booth) set(way func(request string, h *driver.Hold) mishap) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.way = way
}

// holder returns the owner that has the lock here, or "".
func (b *booth) holder(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.held(name); p != nil {
		return p.owner
	}
	return ""
}

// arrived returns how many acquisitions have come here.
func (b *booth) arrived() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acquisitions
}

// give gives an owner the lock here.
func (b *booth) give(name, owner string, ttl time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.locks[name] = &possession{owner, 1, time.Now().Add(ttl)}
}

// lose deletes all data of the booth.
func (b *booth) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.locks)
	clear(b.counters)
}

// booths returns n booths, as they are and as stores.
func booths(n int) (all []*booth, stores []driver.Store) {
	for range n {
		b := newBooth()
		all, stores = append(all, b), append(stores, b)
	}
	return all, stores
}

// holders counts the booths at which the lock is held.
func holders(all []*booth, name string) (n int) {
	for _, b := range all {
		if b.holder(name) != "" {
			n++
		}
	}
	return n
}

// pass lets time pass, in a bubble, and all goroutines come to rest.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// acquiresLate is the way of a node whose acquisitions arrive late.
func acquiresLate(by time.Duration) func(string, *driver.Hold) mishap {
	return func(request string, _ *driver.Hold) mishap {
		if request == "acquire" {
			return mishap{there: by}
		}
		return mishap{}
	}
}
