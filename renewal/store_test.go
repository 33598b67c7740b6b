package renewal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/wheel"
)

// store is a store of leases in virtual time, with as many nodes as keys have prefixes
// ("node/key"), each with its own faults.
type store struct {
	mu       sync.Mutex
	leases   map[string]grant
	nodes    map[string]*node
	requests []request
	quiet    bool          // keep no requests
	gate     chan struct{} // not nil: Group waits until it is closed
	// gone has the owners whose lease was stopped: none of them may be in a request any
	// more.
	gone map[string]bool
	// renewing counts the requests that each owner's lease is in.
	renewing map[string]int
	// broken is the broken rule of the tests.
	broken error
}

type grant struct {
	owner   string
	expires time.Time
}

type request struct {
	at    time.Time
	group string
	keys  []string
}

// node describes how a node treats requests.
type node struct {
	before, after time.Duration // on the way there, and back
	mute          bool          // requests never arrive
	noReply       bool          // they are carried out, but the replies are lost
	deaf          bool          // the client does not notice when its context ends
	refuse        error         // at once
	// fast is by how much the node's clock is ahead after a second.
	fast time.Duration
	// gives is the TTL of every grant; 0 means the requested one.
	gives time.Duration
	// bad keys get no answer.
	bad map[string]error
	// poison keys leave their whole batch without an answer.
	poison map[string]bool
}

func newStore() *store {
	return &store{leases: map[string]grant{}, nodes: map[string]*node{}, gone: map[string]bool{}, renewing: map[string]int{}}
}

// node changes how a node behaves.
func (s *store) node(name string, change func(*node)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.at(name))
}

func (s *store) at(name string) *node {
	n := s.nodes[name]
	if n == nil {
		n = &node{}
		s.nodes[name] = n
	}
	return n
}

// Group blocks while the gate is shut.
func (s *store) Group(key string, _ any) string {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return groupOf(key)
}

// shut keeps leases that fall due from the groups' queues until open is called.
func (s *store) shut() (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gate = nil
		close(gate)
	}
}

func groupOf(key string) string {
	name, _, ok := strings.Cut(key, "/")
	if !ok {
		return ""
	}
	return name
}

func (s *store) Renew(ctx context.Context, items []Item) {
	group := groupOf(items[0].Key)
	s.mu.Lock()
	n := *s.at(group)
	s.note(group, items)
	s.mu.Unlock()
	defer s.noteEnd(items)
	if n.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if n.refuse != nil {
		for i := range items {
			items[i].Err = n.refuse
		}
		return
	}
	if n.mute {
		n.before = 1 << 62
	}
	if !sleep(ctx, n.before) {
		return
	}
	answers := s.renew(group, n, items)
	if n.noReply {
		<-ctx.Done()
	}
	if answers == nil || !sleep(ctx, n.after) {
		return
	}
	copy(items, answers)
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *store) note(group string, items []Item) {
	r := request{at: time.Now(), group: group}
	for _, item := range items {
		if s.renewing[item.Owner]++; s.renewing[item.Owner] > 1 {
			s.broken = fmt.Errorf("lease %q is in two requests at once", item.Key)
		}
		if s.gone[item.Owner] {
			s.broken = fmt.Errorf("lease %q is renewed after its Stop returned", item.Key)
		}
		if groupOf(item.Key) != group {
			s.broken = fmt.Errorf("lease %q travels with group %q", item.Key, group)
		}
		if !s.quiet {
			r.keys = append(r.keys, item.Key)
		}
	}
	if !s.quiet {
		s.requests = append(s.requests, r)
	}
}

func (s *store) noteEnd(items []Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range items {
		s.renewing[item.Owner]--
	}
}

// renew is the store's side of a request. nil is no reply.
func (s *store) renew(group string, n node, items []Item) []Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	answers := append([]Item(nil), items...)
	for i := range answers {
		a := &answers[i]
		key := a.Key
		if n.poison[key] {
			return nil
		}
		if err, bad := n.bad[key]; bad {
			a.Err = err
			continue
		}
		switch g, ok := s.get(key); {
		case !ok:
			a.Outcome = Gone
		case g.owner != a.Owner:
			a.Outcome = Taken
		default:
			ttl := a.TTL
			if n.gives != 0 {
				ttl, a.Given = n.gives, n.gives
			}
			s.put(key, g.owner, ttl)
			a.Outcome = Renewed
		}
	}
	return answers
}

func (s *store) get(key string) (grant, bool) {
	g, ok := s.leases[key]
	if ok && !time.Now().Before(g.expires) {
		delete(s.leases, key)
		ok = false
	}
	return g, ok
}

func (s *store) put(key, owner string, ttl time.Duration) {
	early := time.Duration(ttl.Seconds() * float64(s.at(groupOf(key)).fast))
	s.leases[key] = grant{owner, time.Now().Add(ttl - early)}
}

// acquire grants the lease if it is free.
func (s *store) acquire(key, owner string, ttl time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, held := s.get(key); held {
		return false
	}
	s.put(key, owner, ttl)
	return true
}

// remove deletes the lease of any owner.
func (s *store) remove(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, key)
}

// forbid makes the tests fail if the owner's lease is in a request from now on.
func (s *store) forbid(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone[owner] = true
}

// take returns the requests so far and forgets them.
func (s *store) take() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.requests
	s.requests = nil
	return r
}

const tick = 10 * time.Millisecond

// bench is the environment of most tests: a store, and a watchdog that renews there.
type bench struct {
	*testing.T
	*store
	dog *Watchdog
}

// inBubble runs f in virtual time, with a watchdog that is closed afterwards.
func inBubble(t *testing.T, c Config, f func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		dog, err := New(s, c)
		require.NoError(t, err)
		b := &bench{t, s, dog}
		defer b.close()
		f(b)
	})
}

func (b *bench) close() {
	require.NoError(b, b.dog.Close(context.Background()))
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NoError(b, b.broken)
	b.dog.mu.Lock()
	defer b.dog.mu.Unlock()
	require.Zero(b, b.dog.stats.Held)
	require.Zero(b, b.dog.stats.Queued)
	require.Zero(b, b.dog.stats.Suspect)
	require.Zero(b, b.dog.inFlight)
	require.Zero(b, b.dog.repeated)
	require.Zero(b, b.dog.running)
	for _, g := range b.dog.groups {
		require.Zero(b, g.inFlight)
	}
}

// grant makes the store grant a lease, which the watchdog then keeps.
func (b *bench) grant(s Spec) *Lease {
	b.Helper()
	if s.TTL == 0 {
		s.TTL = 30 * time.Second
	}
	if s.Owner == "" {
		s.Owner = "owner of " + s.Key
	}
	s.Granted = time.Now()
	require.True(b, b.acquire(s.Key, s.Owner, cmp.Or(s.First, s.TTL)))
	l, err := b.dog.Watch(s)
	require.NoError(b, err)
	return l
}

// stop stops the lease; it must not be renewed afterwards.
func (b *bench) stop(l *Lease) {
	b.Helper()
	require.NoError(b, l.Stop(b.Context()))
	b.forbid(l.Owner())
}

// awaitRequest waits until a request is in flight.
func (b *bench) awaitRequest() {
	for b.dog.Stats().InFlight == 0 {
		time.Sleep(tick)
		synctest.Wait()
	}
}

// lostIn returns how long after now the lease is lost; it waits at most for the
// given time.
func lostIn(l *Lease, most time.Duration) (time.Duration, error) {
	start := time.Now()
	select {
	case <-l.Lost():
		return time.Since(start), nil
	case <-time.After(most):
		return 0, errors.New("not lost")
	}
}

// lost waits for the lease's loss, which must be reported at until, with this cause.
func (b *bench) lost(l *Lease, cause Cause) *LostError {
	b.Helper()
	_, err := lostIn(l, 100*time.Hour)
	require.NoError(b, err)
	return b.isLost(l, cause)
}

func (b *bench) isLost(l *Lease, cause Cause) *LostError {
	b.Helper()
	var lost *LostError
	require.ErrorAs(b, l.Err(), &lost)
	require.Equal(b, cause, lost.Cause, "%v", lost)
	require.ErrorIs(b, lost, ErrLost)
	require.Equal(b, l.Key(), lost.Key)
	require.False(b, l.Valid())
	require.ErrorIs(b, context.Cause(l.Context()), ErrLost)
	return lost
}

// inTime fails unless it is between until and a tick later.
func (b *bench) inTime(until time.Time) {
	b.Helper()
	late := time.Since(until)
	require.GreaterOrEqual(b, late, time.Duration(0), "told before its time was over")
	require.LessOrEqual(b, late, tick, "told late")
}

// newWheel returns a wheel that is stopped with the test.
func (b *bench) newWheel(c wheel.Config) *wheel.Wheel {
	w, err := wheel.New(c)
	require.NoError(b, err)
	return w
}
