// Package machinetest compares a store with the machine: both are given the same random
// operations on one name, by several owners, at chosen instants, and do the same. What is compared:
// replies, with every token, TTL and instant; the notices to each subscription; and the description
// of the name after each operation.
//
// Not compared: more than a hundred of anything, where a store may do a part; clocks that are set
// back; requests that arrive at once.
package machinetest

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/renewal"
)

var (
	firstSeed = flag.Uint64("differential.seed", 1, "the first seed of the differential test")
	sequences = flag.Uint64("differential.sequences", 12, "how many sequences the differential test plays of each mix of operations")
	replay    = flag.String("differential.replay", "", "the operations that the differential test plays, as it prints them, in place of random ones")
)

// Store is a store of every kind.
type Store interface {
	driver.Store
	driver.Counter
	driver.Fencer
	driver.PlaceKeeper
	driver.Inspector
}

// Side is what is compared with the machine: a server whose clock is chosen, and stores on it.
type Side struct {
	Name  string    // in reports
	Start time.Time // the clock, until it is set
	// Stores are one for each of Clients.
	Stores []Store
	// Others: the store knows clients of other libraries.
	Others bool
	// SetClock sets the server's clock.
	SetClock func(at time.Time)
	// Merges: the same notice, sent twice by a request, arrives once.
	Merges bool
	// Late makes the requests of a client arrive after their deadline, or in time.
	Late func(client int, late bool)
	// Bounded reports whether the request of an operation that could have a deadline has one.
	Bounded func(do string, k driver.Kind) bool
	// Flush returns when a client has all messages that were sent to it.
	Flush func(ctx context.Context, client int) error
	// Settle returns when the server knows that a subscription has ended, and left are left.
	Settle func(ended *driver.Hold, left []Subscription)
	// After is called after each request.
	After func(ctx context.Context, name string, k driver.Kind)
	// Peer begins or ends the subscription to a mutex of a client of another library; nil: there
	// are none. left are the other subscriptions.
	Peer func(ctx context.Context, name string, subscribe bool, left []Subscription)
}

// Subscription is one of a client.
type Subscription struct {
	Hold   *driver.Hold
	Client int
}

// keptSequences are sequences that have shown a difference, and some that random ones rarely
// come to.
//
//go:embed testdata/differential.txt
var keptSequences string

// tags are what names begin with: some have a hash tag.
var tags = []string{"", "{tag}"}

// Run plays the kept sequences, and random ones. newSide returns a side of its own, which ends
// with t.
func Run(t *testing.T, newSide func(t *testing.T) *Side) {
	if *replay != "" {
		var ops []operation
		require.NoError(t, json.Unmarshal([]byte(*replay), &ops))
		a := newArena(t, newSide(t))
		for _, a.tag = range tags {
			if err := a.play(ops); err != nil {
				t.Error(err)
			}
		}
		return
	}
	t.Run("Kept", func(t *testing.T) {
		t.Parallel()
		a := newArena(t, newSide(t))
		for line := range strings.Lines(keptSequences) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			var ops []operation
			require.NoError(t, json.Unmarshal([]byte(line), &ops))
			if err := a.playAgain(ops); err != nil {
				t.Errorf("%v\nreplay with -differential.replay '%s'", err, line)
			}
		}
	})
	for _, m := range mixes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, newSide(t))
			for seed := *firstSeed; seed < *firstSeed+*sequences; seed++ {
				a.tag = tags[seed%uint64(len(tags))]
				ops := m.draw(rand.New(rand.NewPCG(seed, 0)))
				if err := a.playAgain(ops); err != nil {
					ops, err = a.shrink(ops, err)
					list, _ := json.Marshal(ops)
					t.Fatalf("seed %d: %v\nreplay with -differential.replay '%s'", seed, err, list)
				}
			}
		})
	}
}

// operation is one request on one name, some time after the one before.
type operation struct {
	After int64       `json:"after,omitempty"` // µs
	Do    string      `json:"do"`
	Kind  driver.Kind `json:"kind,omitempty"`
	Owner int         `json:"owner,omitempty"`
	N     int64       `json:"n,omitempty"`     // holds, permits, or by how much a count changes
	TTL   int64       `json:"ttl,omitempty"`   // ms; also of a count
	Place int64       `json:"place,omitempty"` // ms; of a writer BlockReaders
	Op    int         `json:"op,omitempty"`    // of a Count
	Token int64       `json:"token,omitempty"` // a proposal, by how many µs ahead
	Flag  bool        `json:"flag,omitempty"`  // Queue.Granted, Owed, or with Under
	Late  bool        `json:"late,omitempty"`  // it arrives after its deadline
	First bool        `json:"first,omitempty"` // by the first holder in place of Owner; the first waiter unsubscribes
}

// mix is a mix of operations.
type mix struct {
	name  string
	kinds []driver.Kind
}

var mixes = []mix{
	{"Mutex", []driver.Kind{driver.KindMutex}},
	{"Fair", []driver.Kind{driver.KindFair}},
	{"ReadWrite", []driver.Kind{driver.KindRead, driver.KindWrite}},
	{"Semaphore", []driver.Kind{driver.KindSemaphore}},
	{"Permits", []driver.Kind{driver.KindPermit}},
	{"Latch", []driver.Kind{driver.KindLatch}},
	{"All", []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindSemaphore, driver.KindPermit, driver.KindLatch}},
}

// pace is what the operations of a sequence have in common, so that owners meet.
type pace struct {
	owners int
	afters []int64 // µs
	ttls   []int64 // ms
	places []int64 // ms
}

// draw returns a random sequence.
func (m mix) draw(r *rand.Rand) []operation {
	p := pace{
		owners: pick(r, 2, 3, owners),
		afters: pick(r, []int64{0, 0, 0, 1, 999, 1000, 1001, 5000, 10_000}, []int64{0, 999, 100_000, 400_000, 1_000_000, 1_001_000, 2_500_000, 5_000_000, 5_001_000}, []int64{0, 0, 0, 0, 0, 0, 1000, 2_500_000, 4_999_000}),
		ttls:   pick(r, []int64{1, 100, 1000, 1000, 5000, 5000, 30_000}, []int64{5000, 30_000}),
		places: pick(r, []int64{0, 5000, 5000}, []int64{5000}),
	}
	ops := make([]operation, 20+r.IntN(40))
	for i := range ops {
		ops[i] = m.drawOne(r, p)
	}
	return ops
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (m mix) drawOne(r *rand.Rand, p pace) operation {
	o := operation{
		After: pick(r, p.afters...),
		Kind:  pick(r, m.kinds...),
		Owner: r.IntN(p.owners),
		N:     pick(r, int64(1), 1, 1, 2, 3),
		TTL:   pick(r, p.ttls...),
		Place: pick(r, p.places...),
		Token: pick(r, int64(0), 0, 0, 16, 1600, 1_000_000, 1_000_016),
		Flag:  r.IntN(3) == 0,
		Late:  r.IntN(12) == 0,
		First: r.IntN(2) == 0,
	}
	if p.owners == 2 && r.IntN(4) == 0 {
		o.Owner = owners - 1
	}
	if r.IntN(50) == 0 {
		o.After = pick(r, r.Int64N(10_000_000), r.Int64N(10_000_000), 60_000_000, 599_000_000, 600_000_000, 600_001_000)
	}
	counts := o.Kind == driver.KindSemaphore || o.Kind == driver.KindPermit || o.Kind == driver.KindLatch
	switch n := r.IntN(100); {
	case n < 35:
		o.Do = "acquire"
	case n < 60:
		o.Do = "release"
		o.N = pick(r, int64(0), 0, 0, 1, 2)
	case n < 70:
		o.Do = "renew"
	case n < 72:
		o.Do = "keep"
	case n < 82:
		o.Do = "subscribe"
	case n < 90:
		o.Do = "unsubscribe"
	case n < 92:
		o.Do = "force"
	default:
		o.Do = "places"
	}
	switch {
	case counts && (o.Do == "places" || o.Do == "force" || r.IntN(5) == 0):
		o.Do = "count"
		o.Op = int(pick(r, driver.CountRead, driver.CountCreate, driver.CountCreate, driver.CountAdd, driver.CountAdd, driver.CountDrain, driver.CountDelete, driver.CountSet, driver.CountForget))
		o.N = pick(r, int64(1), 2, 3, 5, -1, -2, 1<<31-2)
		if o.Op == int(driver.CountCreate) || o.Op == int(driver.CountSet) {
			o.N = max(o.N, 1)
			o.TTL = pick(r, 0, 0, o.TTL)
		}
	case o.Do == "places" && o.Kind == driver.KindMutex:
		o.Do = "peer" // one of another library subscribes
	case o.Do == "places" && o.Kind != driver.KindFair:
		o.Do = "acquire"
	case o.Do == "release" && o.Kind == driver.KindSemaphore:
		o.N = pick(r, int64(1), 1, 2, 3)
	case o.Kind == driver.KindPermit && o.Do == "release":
		o.N = 0
	case o.Kind == driver.KindPermit && o.Do == "acquire":
		o.N = 1
	}
	return o
}

// owners is how many owners of each kind there are.
const owners = 6

// placeTTL is how long each place is kept.
const placeTTL = 5 * time.Second

// Clients are the ids of the clients.
var Clients = []string{
	"aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa",
	"bbbbbbbb-bbbb-8bbb-8bbb-bbbbbbbbbbbb",
	"cccccccc-cccc-8ccc-8ccc-cccccccccccc",
}

// Peer is the id of a client of another library.
const Peer = "dddddddd-dddd-4ddd-8ddd-dddddddddddd"

// hold returns the hold of an operation. An owner is of one kind for ever, in one client; the
// two sides of a read-write lock have the same ones.
func (o *operation) hold(name string) *driver.Hold {
	h := &driver.Hold{
		Kind: o.Kind, Name: name, Owner: ownerOf(o.Kind, o.Owner), Count: o.N, TTL: time.Duration(o.TTL) * time.Millisecond,
	}
	place := time.Duration(o.Place) * time.Millisecond
	switch o.Kind {
	case driver.KindMutex:
		h.Queue = driver.Queue{Subscribed: place > 0, Provisional: time.Second, Granted: o.Flag}
		if place > 0 || o.Owner > 3 { // the others make simple requests, as most callers do
			h.Queue.Reserve = int64(o.Owner * 20)
		}
	case driver.KindFair:
		h.Queue.Keep = place
	case driver.KindWrite:
		h.ReadWrite.BlockReaders = place
	case driver.KindRead:
		if o.Flag {
			h.ReadWrite.Under = ownerOf(driver.KindWrite, o.Owner)
		}
	case driver.KindSemaphore:
		h.Count, h.Semaphore = 1, driver.Semaphore{Permits: o.N, Owed: o.Flag}
	case driver.KindPermit:
		h.Semaphore.Permits = permitsOf(o.Owner)
	}
	return h
}

func ownerOf(k driver.Kind, n int) string {
	switch {
	case k == driver.KindMutex && n == owners-1:
		return Peer + ":1"
	case k == driver.KindPermit && permitsOf(n) > 0:
		return fmt.Sprintf("ff%022xfffffffe*%d", n, permitsOf(n))
	case k == driver.KindPermit:
		return fmt.Sprintf("ff%030x", n)
	}
	return fmt.Sprintf("%s:%d%d", Clients[n%len(Clients)], k, n)
}

// permitsOf returns how many permits an owner has at once; zero is one.
func permitsOf(n int) int64 {
	if n%3 == 0 {
		return int64(1 + n)
	}
	return 0
}

// clientOf returns the number of the store that makes an owner's requests.
func clientOf(n int) int { return n % len(Clients) }

// arena is a side and its clock.
type arena struct {
	*Side
	t     *testing.T
	at    time.Time // the clock
	tag   string
	names int
}

func newArena(t *testing.T, s *Side) *arena { return &arena{Side: s, t: t, at: s.Start} }

// match is one sequence of operations on both sides.
type match struct {
	*arena
	name  string
	state machine.State
	subs  []*watched
	peer  bool
	calls int
}

// watched is one subscription.
type watched struct {
	hold   *driver.Hold
	client int
	sub    driver.Subscription
	want   []driver.Notice

	mu  sync.Mutex
	got []driver.Notice
}

// play plays a sequence on a new name. It returns the first difference.
func (a *arena) play(ops []operation) error {
	a.names++
	m := &match{arena: a, name: fmt.Sprint(a.tag, "n", a.names)}
	m.state = machine.State{Others: a.Others, Listening: m.listening}
	defer m.end()
	for i := range ops {
		if err := m.step(&ops[i]); err != nil {
			return fmt.Errorf("operation %d, %+v: %w", i, ops[i], err)
		}
	}
	return nil
}

// playAgain plays a sequence, and after a difference again. A true one comes again. Another one
// is that of a subscription that was moved to a new connection, as if the server was mute for
// too long.
func (a *arena) playAgain(ops []operation) error {
	err := a.play(ops)
	if err == nil {
		return nil
	}
	if again := a.play(ops); again != nil {
		return again
	}
	a.t.Log("not repeated: ", err)
	return nil
}

// shrink removes operations as long as there is a difference.
func (a *arena) shrink(ops []operation, err error) ([]operation, error) {
	for size := len(ops) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(ops); {
			fewer := slices.Delete(slices.Clone(ops), at, at+size)
			if e := a.play(fewer); e != nil {
				ops, err = fewer, e
			} else {
				at += size
			}
		}
	}
	return ops, err
}

func (m *match) end() {
	for len(m.subs) > 0 {
		m.close(0)
	}
	if m.peer {
		m.Peer(context.WithoutCancel(m.t.Context()), m.name, false, nil)
	}
}

// step makes one operation on both sides and compares them.
func (m *match) step(o *operation) error {
	m.at = m.at.Add(time.Duration(o.After) * time.Microsecond)
	m.SetClock(m.at)
	if o.First {
		o = m.ofTheFirst(*o)
	}
	client := clientOf(o.Owner)
	h := o.hold(m.name)
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	late := o.Late && m.bounded(o)
	m.Late(client, late)
	got, want, messages := m.both(ctx, o, m.Stores[client], h)
	m.Late(client, false)
	if !late && got != want {
		return fmt.Errorf("%s: %s\nmachine: %s", m.Side.Name, got, want)
	}
	if late && !strings.Contains(got, "after its deadline") {
		return fmt.Errorf("a late request is answered: %s", got)
	}
	m.After(ctx, m.name, o.Kind)
	if err := m.compareNotices(ctx, messages); err != nil {
		return err
	}
	return m.compareInfo(ctx, o.Kind)
}

// ofTheFirst returns the operation with the owner that it is for.
func (m *match) ofTheFirst(o operation) *operation {
	info := m.state.Inspect(m.at, o.Kind)
	first := ""
	switch {
	case o.Do == "unsubscribe" && len(info.Waiters) > 0:
		first = info.Waiters[0].Owner
	case (o.Do == "release" || o.Do == "renew" || o.Do == "acquire" && (o.N > 1 || o.Flag)) && len(info.Holders) > 0:
		first = info.Holders[0].Owner
	}
	for n := range owners {
		if owner, _, _ := strings.Cut(ownerOf(o.Kind, n), "*"); owner == first {
			o.Owner = n
		}
	}
	return &o
}

// bounded reports whether the operation's request has a deadline.
func (m *match) bounded(o *operation) bool {
	switch o.Do {
	case "acquire":
		return o.Kind != driver.KindLatch && m.Bounded(o.Do, o.Kind)
	case "release":
		return o.Kind == driver.KindSemaphore && m.Bounded(o.Do, o.Kind)
	case "count":
		return o.Op != int(driver.CountForget) && m.counts(o)
	case "renew", "keep":
		return o.Kind != driver.KindSemaphore && o.Kind != driver.KindLatch && m.Bounded(o.Do, o.Kind)
	case "places", "force":
		return true
	}
	return false
}

// both makes the operation on both sides, on the machine's unless the request is late. It
// returns the replies as texts.
func (m *match) both(ctx context.Context, o *operation, store Store, h *driver.Hold) (got, want string, messages []machine.Message) {
	leased := o.Kind != driver.KindSemaphore && o.Kind != driver.KindLatch
	state := &m.state
	if o.Late && m.bounded(o) {
		state = &machine.State{} // the request changes nothing
	}
	switch {
	case o.Do == "acquire" && o.Kind == driver.KindMutex && o.Token > 0:
		token := m.at.Add(time.Duration(o.Token)*time.Microsecond).UnixMicro() / 16 * 16
		a, clock, err := store.AcquireProposing(ctx, h, token)
		b, sent := state.AcquireProposing(m.at, h, token)
		if err == nil && a.Verdict == driver.Granted && !clock.Equal(m.at.Truncate(time.Microsecond)) {
			err = fmt.Errorf("granted at %v by the clock, not %v", clock, m.at)
		}
		a.Lease, b.Lease = given(h, a), given(h, b)
		return text(a, err), text(b, nil), m.sent(o, sent)
	case o.Do == "acquire":
		a, err := store.Acquire(ctx, h)
		b, sent := state.Acquire(m.at, h)
		a.Lease, b.Lease = given(h, a), given(h, b)
		return text(a, err), text(b, nil), m.sent(o, sent)
	case o.Do == "release":
		a, err := store.Release(ctx, h)
		b, sent := state.Release(m.at, h)
		return text(a, err), text(b, nil), m.sent(o, sent)
	case o.Do == "keep" && leased:
		h.Count, h.Keep = 0, h.TTL
		a, err := store.Release(ctx, h)
		b, sent := state.Release(m.at, h)
		return text(a, err), text(b, nil), m.sent(o, sent)
	case o.Do == "renew" && leased:
		items := []renewal.Item{{Key: m.name, Owner: h.Owner, Ref: driver.RefOf(h), TTL: h.TTL}}
		store.Renew(ctx, items)
		b := state.Renew(m.at, h)
		outcomes := map[driver.Verdict]renewal.Outcome{driver.Granted: renewal.Renewed, driver.Refused: renewal.Taken, driver.NotHeld: renewal.Gone}
		a := driver.Answer{Verdict: b.Verdict, Lease: items[0].Given}
		return text(fmt.Sprint(items[0].Outcome, given(h, a)), items[0].Err), text(fmt.Sprint(outcomes[b.Verdict], given(h, b)), nil), nil
	case o.Do == "subscribe":
		m.subscribe(ctx, o, store, h)
	case o.Do == "unsubscribe":
		for i := len(m.subs) - 1; i >= 0; i-- {
			if m.subs[i].hold.Owner == h.Owner {
				m.close(i)
			}
		}
	case o.Do == "peer" && m.Peer != nil:
		m.peer = !m.peer
		m.Peer(ctx, m.name, m.peer, m.left())
		m.state.OthersListening = map[bool]int{true: 1}[m.peer]
	case o.Do == "count" && m.counts(o):
		m.calls++
		c := &driver.Count{
			Kind: o.Kind, Name: m.name, Op: driver.CountOp(o.Op), N: o.N, TTL: time.Duration(o.TTL) * time.Millisecond,
			Request: fmt.Sprint("request:", m.calls), Keep: time.Second,
		}
		if o.Flag {
			c.Request = fmt.Sprint("repeated:", o.Owner)
		}
		if c.Op == driver.CountForget {
			c.TTL, c.Forget = 0, []string{ownerOf(o.Kind, o.Owner)}
		}
		a, err := store.Count(ctx, c)
		b, sent := state.Count(m.at, c)
		return text(a, err), text(b, nil), m.sent(o, sent)
	case o.Do == "places":
		ask := []string{ownerOf(o.Kind, o.Owner)}
		for other := range o.N {
			ask = append(ask, ownerOf(o.Kind, (o.Owner+1+int(other))%owners))
		}
		a, err := store.KeepPlaces(ctx, m.name, ask, placeTTL)
		b := state.KeepPlaces(m.at, ask, placeTTL)
		return text(a, err), text(b, nil), nil
	case o.Do == "force":
		a, err := store.ForceRelease(ctx, m.name)
		b, sent := state.ForceRelease(m.at)
		return text(bare(a), err), text(bare(b), nil), m.sent(o, sent)
	}
	return "", "", nil
}

// given returns the Lease of an answer: both zero and the hold's mean that of the hold.
func given(h *driver.Hold, a driver.Answer) time.Duration {
	if a.Verdict == driver.Granted && a.Lease == h.TTL {
		return 0
	}
	return a.Lease
}

// listening returns how many clients are subscribed to a topic.
func (m *match) listening(t machine.Topic) int {
	subscribed := make(map[int]bool)
	for _, s := range m.subs {
		if slices.Contains(machine.Topics(s.hold), t) {
			subscribed[s.client] = true
		}
	}
	return len(subscribed)
}

// sent returns the messages of a request that is not late.
func (m *match) sent(o *operation, messages []machine.Message) []machine.Message {
	if o.Late && m.bounded(o) {
		return nil
	}
	return messages
}

// counts reports whether the kind has the operation of the count.
func (m *match) counts(o *operation) bool {
	switch driver.CountOp(o.Op) {
	case driver.CountDrain:
		return o.Kind != driver.KindLatch
	case driver.CountSet:
		return o.Kind == driver.KindPermit
	case driver.CountForget:
		return o.Kind == driver.KindSemaphore
	}
	return true
}

func text(reply any, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	return fmt.Sprintf("%+v", reply)
}

func (m *match) subscribe(ctx context.Context, o *operation, store Store, h *driver.Hold) {
	s := &watched{hold: h, client: clientOf(o.Owner)}
	var err error
	s.sub, err = store.Subscribe(ctx, h, func(n driver.Notice) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.got = append(s.got, n)
	})
	require.NoError(m.t, err)
	m.subs = append(m.subs, s)
}

// close ends a subscription, and waits until the server knows.
func (m *match) close(i int) {
	s := m.subs[i]
	m.subs = slices.Delete(m.subs, i, i+1)
	s.sub.Close()
	m.Settle(s.hold, m.left())
}

// left are the subscriptions that have not ended.
func (m *match) left() []Subscription {
	left := make([]Subscription, len(m.subs))
	for i, s := range m.subs {
		left[i] = Subscription{s.hold, s.client}
	}
	return left
}

// compareNotices compares what each subscription has received since the operation before. A
// message behind all others on the same connection shows that there are no more.
func (m *match) compareNotices(ctx context.Context, messages []machine.Message) error {
	for _, s := range m.subs {
		for i, sent := range messages {
			if slices.Contains(machine.Topics(s.hold), sent.To) && !(m.Merges && slices.Contains(messages[:i], sent)) {
				s.want = append(s.want, sent.Notice)
			}
		}
	}
	for i := range m.Stores {
		if slices.ContainsFunc(m.subs, func(s *watched) bool { return s.client == i }) {
			if err := m.Flush(ctx, i); err != nil {
				return err
			}
		}
	}
	for _, s := range m.subs {
		s.mu.Lock()
		got, want := fmt.Sprintf("%+v", s.got), fmt.Sprintf("%+v", s.want)
		s.got, s.want = nil, nil
		s.mu.Unlock()
		if got != want {
			return fmt.Errorf("notices to a waiter for %v %s\n%s: %s\nmachine: %s", s.hold.Kind, s.hold.Owner, m.Side.Name, got, want)
		}
	}
	return nil
}

// compareInfo compares the descriptions of the name.
func (m *match) compareInfo(ctx context.Context, k driver.Kind) error {
	as := []driver.Kind{driver.KindMutex}
	if k == driver.KindSemaphore || k == driver.KindPermit || k == driver.KindLatch {
		as = append(as, k)
	}
	for _, k := range as {
		a, err := m.Stores[0].Inspect(ctx, m.name, k)
		b := m.state.Inspect(m.at, k)
		if got, want := text(bare(a), err), text(bare(b), nil); got != want {
			return fmt.Errorf("the description as %v\n%s: %s\nmachine: %s", k, m.Side.Name, got, want)
		}
	}
	return nil
}

// bare returns a description without what the machine leaves to the store.
func bare(info driver.Info) driver.Info {
	info.Name = ""
	for i := range info.Holders {
		info.Holders[i].Client = driver.Client{}
	}
	for i := range info.Waiters {
		info.Waiters[i].Client = driver.Client{}
	}
	return info
}
