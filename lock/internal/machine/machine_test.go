package machine_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// name is one name with its clock and the clients that are subscribed.
type name struct {
	machine.State
	now    time.Time
	topics []machine.Topic
	sent   []machine.Message // since the last subscription
}

func newName() *name {
	n := &name{now: time.UnixMilli(1_800_000_000_000)}
	n.Listening = func(t machine.Topic) int {
		if slices.Contains(n.topics, t) {
			return 1
		}
		return 0
	}
	return n
}

const ttl = 10 * time.Second

// hold returns a hold of an owner such as "a:1", with a place.
func hold(k driver.Kind, owner string, also ...func(*driver.Hold)) *driver.Hold {
	h := &driver.Hold{Kind: k, Owner: owner, Count: 1, TTL: ttl}
	switch k {
	case driver.KindMutex:
		h.Queue.Subscribed = true
	case driver.KindFair:
		h.Queue.Keep = 5 * time.Second
	case driver.KindSemaphore:
		h.Semaphore.Permits = 1
	}
	for _, set := range also {
		set(h)
	}
	return h
}

func count(n int64) func(*driver.Hold)           { return func(h *driver.Hold) { h.Count = n } }
func lasting(d time.Duration) func(*driver.Hold) { return func(h *driver.Hold) { h.TTL = d } }

func (n *name) pass(d time.Duration) { n.now = n.now.Add(d) }

func (n *name) acquire(h *driver.Hold) driver.Answer {
	a, sent := n.Acquire(n.now, h)
	n.sent = append(n.sent, sent...)
	return a
}

func (n *name) release(h *driver.Hold) (held bool) {
	held, sent := n.Release(n.now, h)
	n.sent = append(n.sent, sent...)
	return held
}

// free releases all holds of the hold's owner.
func (n *name) free(h *driver.Hold) (held bool) {
	all := *h
	all.Count = 0
	return n.release(&all)
}

func (n *name) count(k driver.Kind, op driver.CountOp, by int64, request string) driver.Counted {
	c, sent := n.Count(n.now, &driver.Count{Kind: k, Op: op, N: by, Request: request, Keep: ttl})
	n.sent = append(n.sent, sent...)
	return c
}

func (n *name) subscribe(h *driver.Hold) {
	n.topics, n.sent = append(n.topics, machine.Topics(h)...), nil
}

// received returns what a waiter for the hold has received: "wake", or the owner that was granted
// the lock.
func (n *name) received(h *driver.Hold) string {
	var words []string
	for _, m := range n.sent {
		if slices.Contains(machine.Topics(h), m.To) {
			words = append(words, cmp.Or(m.Notice.Owner, "wake"))
		}
	}
	return strings.Join(words, " ")
}

func (n *name) verdict(h *driver.Hold) driver.Verdict { return n.acquire(h).Verdict }

const (
	granted = driver.Granted
	refused = driver.Refused
	notHeld = driver.NotHeld
)

// Every kind with one owner excludes others until its release, or until its TTL.
func TestExcludes(t *testing.T) {
	for _, k := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindWrite} {
		t.Run(k.String(), func(t *testing.T) {
			n := newName()
			a, b := hold(k, "a:1"), hold(k, "b:1")
			b.Queue = driver.Queue{}
			first := n.acquire(a)
			require.Equal(t, granted, first.Verdict)
			assert.Equal(t, n.now.UnixMicro(), first.Token)
			n.pass(ttl - time.Millisecond)
			assert.Equal(t, time.Millisecond, n.acquire(b).Wait)
			n.pass(time.Millisecond)
			assert.Equal(t, driver.Answer{Wait: time.Millisecond}, n.acquire(b), "in its last ms")
			n.pass(time.Millisecond)
			second := n.acquire(b)
			assert.Equal(t, granted, second.Verdict)
			assert.Greater(t, second.Token, first.Token)
			assert.False(t, n.free(a), "the former owner releases nothing")
			assert.Equal(t, driver.Answer{}, n.Renew(n.now, a), "nor renews it")
			assert.True(t, n.free(b))
			assert.Equal(t, notHeld, n.Renew(n.now, b).Verdict)
			assert.Equal(t, second.Token+16, n.acquire(a).Token, "at the same instant")
		})
	}
}

// A hold is granted again, with its token and a new TTL; further holds need a first one.
func TestHoldsAreAbsolute(t *testing.T) {
	for k, lowered := range map[driver.Kind]int64{driver.KindMutex: 1, driver.KindFair: 1, driver.KindRead: 3, driver.KindWrite: 3} {
		t.Run(k.String(), func(t *testing.T) {
			n := newName()
			a := hold(k, "a:1")
			require.Equal(t, notHeld, n.verdict(hold(k, "a:1", count(2))))
			token := n.acquire(a).Token
			n.pass(ttl)
			again := n.acquire(hold(k, "a:1", count(3)))
			assert.Equal(t, granted, again.Verdict)
			assert.Equal(t, token, again.Token)
			n.acquire(a)
			assert.Equal(t, lowered, n.Inspect(n.now, driver.KindMutex).Holders[0].Holds, "after a late request for one")
			n.acquire(hold(k, "a:1", count(3)))
			assert.True(t, n.release(hold(k, "a:1", count(1))))
			assert.Equal(t, int64(1), n.Inspect(n.now, driver.KindMutex).Holders[0].Holds)
			n.pass(ttl)
			kept := hold(k, "a:1", count(0))
			kept.Keep = time.Second
			assert.True(t, n.release(kept))
			n.pass(time.Second + 2*time.Millisecond)
			if k == driver.KindWrite || k == driver.KindRead { // others may hold it: never shortened
				n.pass(ttl)
			}
			assert.False(t, n.free(a))
		})
	}
}

func TestReleaseGrantsToTheFirstLivingWaiter(t *testing.T) {
	n := newName()
	waiters := []*driver.Hold{hold(driver.KindMutex, "dead:1"), hold(driver.KindMutex, "b:1"), hold(driver.KindMutex, "c:1")}
	holder := hold(driver.KindMutex, "a:1")
	n.acquire(holder)
	for _, h := range waiters {
		h.Queue.Provisional, h.Queue.Reserve = time.Second, 100
		n.pass(time.Millisecond)
		assert.Equal(t, n.now.UnixMicro(), n.acquire(h).At.UnixMicro())
	}
	n.subscribe(waiters[1])
	n.subscribe(waiters[2])
	n.pass(time.Second)
	require.True(t, n.free(holder))
	assert.Equal(t, "b:1", n.received(waiters[1]))
	assert.Empty(t, n.received(waiters[2]))
	notice := n.sent[0].Notice
	assert.Equal(t, time.Second, notice.TTL)
	assert.Equal(t, n.now.UnixMicro(), notice.At.UnixMicro())
	assert.Equal(t, int64(100), notice.Reserved)
	info := n.Inspect(n.now, driver.KindMutex)
	assert.Equal(t, "b:1", info.Holders[0].Owner)
	assert.Equal(t, []string{"c:1"}, owners(info.Waiters))
}

func owners(waiters []driver.Waiter) (names []string) {
	for _, w := range waiters {
		names = append(names, w.Owner)
	}
	return names
}

func TestReleaseWithoutWaitersWakesAll(t *testing.T) {
	n := newName()
	a, b := hold(driver.KindMutex, "a:1"), hold(driver.KindMutex, "b:1")
	n.subscribe(b) // without a place
	n.acquire(a)
	n.free(a)
	assert.Equal(t, "wake", n.received(b))
}

// One that asks while others are in the queue before it is refused, and the first gets the lock.
func TestRequestGrantsToTheQueueFirst(t *testing.T) {
	n := newName()
	a, b, c := hold(driver.KindMutex, "a:1"), hold(driver.KindMutex, "b:1"), hold(driver.KindMutex, "c:1")
	n.acquire(a)
	n.acquire(b)
	n.subscribe(b)
	n.pass(ttl + time.Millisecond)
	assert.Equal(t, driver.Answer{Wait: ttl, At: time.UnixMicro(n.now.UnixMicro())}, n.acquire(c))
	assert.Equal(t, "b:1", n.received(b))
	assert.Equal(t, granted, n.verdict(b), "the grant counts as if it had requested it")
}

func TestWaiterLeavesTheQueue(t *testing.T) {
	n := newName()
	a, b, c := hold(driver.KindMutex, "a:1"), hold(driver.KindMutex, "b:1"), hold(driver.KindMutex, "c:1")
	n.subscribe(b)
	n.subscribe(c)
	n.acquire(a)
	n.acquire(b)
	n.acquire(c)
	assert.False(t, n.free(b))
	n.free(a)
	assert.Equal(t, "c:1", n.received(c))
}

func TestWindowForOthers(t *testing.T) {
	n := newName()
	n.Others, n.OthersListening = true, 1
	a, b := hold(driver.KindMutex, "a:1"), hold(driver.KindMutex, "b:1")
	a.Queue.Granted = true
	n.subscribe(b)
	n.acquire(a)
	n.acquire(b)
	n.free(a)
	assert.Equal(t, "wake", n.received(b))
	assert.Equal(t, 10*time.Millisecond, n.acquire(b).Wait)
	n.pass(10 * time.Millisecond)
	assert.Equal(t, granted, n.verdict(b))
}

func TestTokens(t *testing.T) {
	n := newName()
	a := hold(driver.KindMutex, "a:1")
	next := func(also ...func(*driver.Hold)) driver.Answer {
		answer := n.acquire(hold(driver.KindMutex, "a:1", also...))
		n.free(a)
		return answer
	}
	first := next().Token
	n.pass(-time.Hour) // the clock is set back
	assert.Equal(t, first+16, next().Token)
	n.pass(2 * time.Hour)
	propose := func(ahead time.Duration) (token int64) {
		answer, _ := n.AcquireProposing(n.now, a, n.now.Add(ahead).UnixMicro())
		n.free(a)
		return answer.Token
	}
	assert.Equal(t, n.now.Add(time.Second).UnixMicro(), propose(time.Second))
	n.pass(time.Minute)
	assert.Equal(t, n.now.UnixMicro(), propose(time.Second+16*time.Microsecond), "too far ahead")
	n.pass(time.Minute)
	reserved := next(func(h *driver.Hold) { h.Queue.Reserve = 1 << 20 })
	assert.Equal(t, n.now.Add(-10*time.Millisecond).UnixMicro(), reserved.Token)
	assert.Equal(t, n.now.UnixMicro(), reserved.Token+reserved.Reserved)
	raised := n.now.Add(time.Hour).UnixMicro()
	assert.False(t, n.Fence(n.now, a, raised), "it does not hold the mutex")
	n.pass(time.Minute)
	assert.Equal(t, n.now.UnixMicro(), next().Token)
	require.Equal(t, granted, n.verdict(a))
	assert.True(t, n.Fence(n.now, a, raised-1))
	assert.True(t, n.Fence(n.now, a, 1), "it is beyond")
	n.free(a)
	assert.Equal(t, raised+16, next().Token)
}

func TestFairOrder(t *testing.T) {
	n := newName()
	a, b, c := hold(driver.KindFair, "a:1"), hold(driver.KindFair, "b:1"), hold(driver.KindFair, "c:1")
	n.acquire(a)
	assert.Equal(t, driver.Answer{Wait: ttl}, n.acquire(b))
	assert.Equal(t, driver.Answer{Wait: ttl, Behind: true}, n.acquire(c))
	n.free(a)
	assert.Equal(t, "wake", n.received(b))
	assert.Empty(t, n.received(c))
	assert.Equal(t, refused, n.verdict(c), "nobody overtakes")
	assert.Equal(t, refused, n.verdict(hold(driver.KindFair, "d:1", func(h *driver.Hold) { h.Queue.Keep = 0 })))
	assert.Equal(t, []string{"b:1", "c:1"}, owners(n.Inspect(n.now, driver.KindMutex).Waiters))
	n.pass(4 * time.Second)
	n.acquire(c)
	n.pass(time.Second) // the place of b ends
	assert.Equal(t, granted, n.verdict(c))
}

// The places of the living are kept if one of them was found to have ended.
func TestFairQueueOutlastsAnOutage(t *testing.T) {
	n := newName()
	a, b, c := hold(driver.KindFair, "a:1"), hold(driver.KindFair, "b:1"), hold(driver.KindFair, "c:1")
	n.acquire(a)
	n.acquire(b)
	n.acquire(c)
	n.pass(time.Minute)
	assert.Equal(t, driver.Answer{Behind: true}, n.acquire(c))
	assert.Equal(t, granted, n.verdict(b))
}

// A release skips a waiter that is not subscribed any more. It is the head again if it asks.
func TestFairWaiterThatHasGone(t *testing.T) {
	n := newName()
	a, b, c := hold(driver.KindFair, "a:1"), hold(driver.KindFair, "b:1"), hold(driver.KindFair, "c:1")
	n.subscribe(b)
	n.acquire(a)
	n.acquire(b)
	n.acquire(c)
	n.topics = nil
	n.free(a)
	assert.Empty(t, n.received(b))
	assert.Equal(t, "wake", n.received(c))
	assert.Equal(t, granted, n.verdict(b))
}

func TestKeepPlaces(t *testing.T) {
	n := newName()
	all := []string{"x:1", "b:1", "c:1"}
	n.acquire(hold(driver.KindFair, "a:1", lasting(time.Hour)))
	assert.Equal(t, []int{0, 1, 2}, n.KeepPlaces(n.now, all, ttl), "it makes none")
	n.acquire(hold(driver.KindFair, "b:1"))
	n.acquire(hold(driver.KindFair, "c:1"))
	assert.Equal(t, []int{0, 1}, n.KeepPlaces(n.now, all, ttl), "the head asks")
	assert.Empty(t, n.KeepPlaces(n.now, all[2:], time.Minute))
	n.pass(ttl)
	assert.Equal(t, []int{0}, n.KeepPlaces(n.now, all[2:], ttl), "the head is dead")
}

func TestReaders(t *testing.T) {
	n := newName()
	a, b, w := hold(driver.KindRead, "a:1"), hold(driver.KindRead, "b:1", lasting(time.Second)), hold(driver.KindWrite, "w:1")
	token := n.acquire(a).Token
	n.pass(time.Millisecond)
	assert.Equal(t, token, n.acquire(b).Token, "they share it")
	w.ReadWrite.BlockReaders = time.Minute
	assert.Equal(t, driver.Answer{Wait: time.Second}, n.acquire(w), "until the first ends")
	assert.Equal(t, driver.Answer{Wait: time.Minute}, n.acquire(hold(driver.KindRead, "c:1")), "claimed")
	assert.Equal(t, granted, n.verdict(a))
	n.pass(2 * time.Second)
	assert.False(t, n.free(b), "it is dead")
	n.subscribe(w)
	assert.Empty(t, n.received(w))
	n.free(a)
	assert.Equal(t, "wake", n.received(w))
	assert.Equal(t, refused, n.verdict(b), "claimed while it is free")
	later := n.acquire(w)
	assert.Greater(t, later.Token, token)
	n.free(w)
	assert.Equal(t, granted, n.verdict(b), "a grant ends the claim")
}

func TestWriterThatGivesUpEndsItsClaim(t *testing.T) {
	n := newName()
	a, w := hold(driver.KindRead, "a:1"), hold(driver.KindWrite, "w:1")
	w.ReadWrite.BlockReaders = time.Minute
	n.acquire(a)
	n.acquire(w)
	n.subscribe(a)
	assert.False(t, n.free(w))
	assert.Equal(t, "wake", n.received(a))
	assert.Equal(t, granted, n.verdict(hold(driver.KindRead, "b:1")))
}

func TestReadsUnderItsOwnWrite(t *testing.T) {
	n := newName()
	w, r := hold(driver.KindWrite, "w:1"), hold(driver.KindRead, "w:2", func(h *driver.Hold) { h.ReadWrite.Under = "w:1" })
	token := n.acquire(w).Token
	assert.Equal(t, refused, n.verdict(hold(driver.KindRead, "b:1")))
	assert.Equal(t, token, n.acquire(r).Token)
	n.free(w)
	assert.Equal(t, driver.KindRead, n.Inspect(n.now, driver.KindMutex).Kind)
	assert.Equal(t, granted, n.verdict(hold(driver.KindRead, "b:1")), "it has become a read lock")
	assert.Equal(t, refused, n.verdict(w), "and no upgrade")
}

func TestRenewal(t *testing.T) {
	n := newName()
	r := hold(driver.KindRead, "a:1")
	n.acquire(r)
	n.pass(9 * time.Second)
	assert.Equal(t, driver.Answer{Verdict: granted}, n.Renew(n.now, r))
	n.Others = true
	n.pass(9 * time.Second)
	assert.Equal(t, driver.Answer{Verdict: granted, Lease: time.Second}, n.Renew(n.now, r), "as if another watchdog had shortened it")
	n.pass(time.Hour)
	assert.Equal(t, notHeld, n.Renew(n.now, r).Verdict, "nothing is revived")
}

func TestSemaphoreTakesOnce(t *testing.T) {
	n := newName()
	a, b := hold(driver.KindSemaphore, "a:1"), hold(driver.KindSemaphore, "b:1")
	a.Semaphore.Permits = 2
	assert.Equal(t, refused, n.verdict(a), "there are none")
	require.Equal(t, driver.Counted{Done: true, Count: 3}, n.count(driver.KindSemaphore, driver.CountCreate, 3, "1"))
	assert.Equal(t, driver.Answer{Verdict: granted, More: true}, n.acquire(a))
	assert.Equal(t, driver.Answer{Verdict: granted, More: true}, n.acquire(a))
	assert.Equal(t, driver.Counted{Count: 1}, n.count(driver.KindSemaphore, driver.CountRead, 0, ""))
	assert.False(t, n.free(b), "it took none")
	assert.Equal(t, refused, n.verdict(b), "a request that is late takes nothing after its release")
	n.subscribe(b)
	assert.True(t, n.free(a))
	assert.True(t, n.free(a))
	assert.Equal(t, "wake", n.received(b))
	assert.Equal(t, int64(3), n.count(driver.KindSemaphore, driver.CountRead, 0, "").Count)
	owed := hold(driver.KindSemaphore, "c:1", func(h *driver.Hold) { h.Semaphore.Owed = true })
	assert.True(t, n.free(owed))
	assert.True(t, n.free(owed))
	assert.Equal(t, int64(4), n.count(driver.KindSemaphore, driver.CountRead, 0, "").Count)
	n.Count(n.now, &driver.Count{Kind: driver.KindSemaphore, Op: driver.CountForget, Forget: []string{"b:1"}, Keep: time.Second})
	n.pass(time.Second + time.Millisecond)
	assert.Equal(t, granted, n.verdict(b), "it was forgotten")
}

func TestCounts(t *testing.T) {
	n := newName()
	sem := driver.KindSemaphore
	n.count(sem, driver.CountCreate, 2, "1")
	assert.Equal(t, driver.Counted{Count: 2}, n.count(sem, driver.CountCreate, 9, "2"))
	assert.Equal(t, driver.Counted{Done: true, Count: -1}, n.count(sem, driver.CountAdd, -3, "3"))
	assert.Equal(t, driver.Counted{Done: true, Count: -1}, n.count(sem, driver.CountAdd, -3, "3"), "once")
	assert.Equal(t, driver.Counted{Count: -1}, n.count(sem, driver.CountAdd, -1<<31, "4"), "out of range")
	assert.Equal(t, driver.Counted{}, n.count(sem, driver.CountDrain, 0, "5"))
	n.count(sem, driver.CountAdd, 5, "6")
	assert.Equal(t, driver.Counted{Done: true, Count: 4}, n.count(sem, driver.CountDrain, 0, "7"))
	assert.Equal(t, driver.Counted{Done: true}, n.count(sem, driver.CountDelete, 0, "8"))
	assert.Equal(t, driver.Counted{}, n.count(sem, driver.CountDelete, 0, "9"))
}

const first, second = "00000000000000000000000000000001", "00000000000000000000000000000010"

func TestPermits(t *testing.T) {
	n := newName()
	a, two := hold(driver.KindPermit, first), hold(driver.KindPermit, second+"*2", func(h *driver.Hold) { h.Semaphore.Permits = 2 })
	n.count(driver.KindPermit, driver.CountCreate, 2, "1")
	token := n.acquire(a).Token
	assert.Equal(t, driver.Answer{Wait: ttl}, n.acquire(two), "all or none")
	n.pass(time.Second)
	assert.Greater(t, n.acquire(a).Token, token, "each grant has a new one")
	n.pass(ttl)
	assert.Equal(t, notHeld, n.Renew(n.now, a).Verdict, "it has expired")
	assert.Equal(t, driver.Answer{Verdict: granted, Token: n.now.UnixMicro() / 16 * 16, Lease: ttl}, n.acquire(two))
	info := n.Inspect(n.now, driver.KindPermit)
	assert.Equal(t, []string{second, second[:31] + "1"}, []string{info.Holders[0].Owner, info.Holders[1].Owner})
	assert.Equal(t, driver.Counted{Done: true, Count: 3}, n.count(driver.KindPermit, driver.CountSet, 3, "2"))
	assert.Equal(t, granted, n.verdict(a))
	n.subscribe(a)
	assert.True(t, n.free(two))
	assert.Equal(t, "wake", n.received(a))
	assert.False(t, n.free(two))
}

// A permit that is given back just after its number has ended makes no number of one permit, which
// would have no end.
func TestPermitOutlivesItsNumber(t *testing.T) {
	for name, give := range map[string]func(n *name, h *driver.Hold){
		"released":         func(n *name, h *driver.Hold) { assert.True(t, n.free(h)) },
		"its process died": func(n *name, h *driver.Hold) { n.Leave(n.now, h.Owner) },
	} {
		t.Run(name, func(t *testing.T) {
			n := newName()
			n.Count(n.now, &driver.Count{Kind: driver.KindPermit, Op: driver.CountCreate, N: 2, TTL: time.Second, Request: "1", Keep: ttl})
			n.pass(time.Second) // its last ms
			h := hold(driver.KindPermit, first)
			assert.Equal(t, granted, n.verdict(h))
			n.pass(time.Millisecond)
			give(n, h)
			assert.Equal(t, driver.Counted{Done: true, Count: 3}, n.count(driver.KindPermit, driver.CountCreate, 3, "2"))
		})
	}
}

func TestLatch(t *testing.T) {
	n := newName()
	latch, h := driver.KindLatch, hold(driver.KindLatch, "a:1")
	open := driver.Answer{Verdict: granted, More: true}
	assert.Equal(t, open, n.acquire(h))
	n.count(latch, driver.CountCreate, 2, "1")
	assert.Equal(t, refused, n.verdict(h))
	assert.Equal(t, driver.Counted{Done: true, Count: 1}, n.count(latch, driver.CountAdd, -1, "2"))
	assert.Equal(t, driver.Counted{Done: true, Count: 1}, n.count(latch, driver.CountAdd, -1, "2"), "once")
	n.subscribe(h)
	n.sent = nil
	n.count(latch, driver.CountAdd, -5, "3")
	assert.Equal(t, "wake", n.received(h))
	assert.Equal(t, open, n.acquire(h))
	assert.Equal(t, driver.Counted{}, n.count(latch, driver.CountAdd, 1, "4"), "an open latch is not counted")
}

// The table of doc.go.
func TestKindsThatShareAName(t *testing.T) {
	busy := map[string]func(*name){
		"mutex": func(n *name) { n.acquire(hold(driver.KindMutex, "x:1")) },
		"fair":  func(n *name) { n.acquire(hold(driver.KindFair, "x:2")) },
		"read":  func(n *name) { n.acquire(hold(driver.KindRead, "x:3")) },
		"write": func(n *name) { n.acquire(hold(driver.KindWrite, "x:4")) },
		"count": func(n *name) { n.count(driver.KindLatch, driver.CountCreate, 1, "1") },
	}
	const h, f, g, r = "held", "foreign", "granted", "refused"
	for under, want := range map[string][7]string{
		"mutex": {h, h, f, f, f, f, f},
		"fair":  {h, h, f, f, f, f, f},
		"read":  {h, h, g, h, f, f, f},
		"write": {h, h, h, h, f, f, f},
		"count": {f, f, f, f, g, g, r},
	} {
		for k, want := range want {
			n := newName()
			busy[under](n)
			owner := "a:1"
			if driver.Kind(k) == driver.KindPermit {
				owner = first
			}
			a := n.acquire(hold(driver.Kind(k), owner))
			got := map[bool]string{true: g, false: h}[a.Verdict == granted]
			if a.Foreign {
				got = f
			} else if a.Verdict == refused && a.Wait == 0 {
				got = r
			}
			assert.Equal(t, want, got, "%v under a %s", driver.Kind(k), under)
		}
	}
}

func TestForceRelease(t *testing.T) {
	for _, k := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite} {
		n := newName()
		a, b := hold(k, "a:1"), hold(k, "b:1")
		n.acquire(a)
		n.acquire(b)
		n.subscribe(b)
		info, sent := n.ForceRelease(n.now)
		n.sent = sent
		assert.Equal(t, "a:1", info.Holders[0].Owner)
		assert.Equal(t, "wake", n.received(b))
		assert.Equal(t, granted, n.verdict(b))
	}
	n := newName()
	n.count(driver.KindSemaphore, driver.CountCreate, 1, "1")
	info, _ := n.ForceRelease(n.now)
	assert.Equal(t, "string", info.Foreign)
	assert.Equal(t, int64(1), n.count(driver.KindSemaphore, driver.CountRead, 0, "").Count)
}

// A request for permits that its owner has, sent again after their number was deleted, ends none of others.
func TestPermitsAgainWithoutTheirNumber(t *testing.T) {
	n := newName()
	n.count(driver.KindPermit, driver.CountCreate, 2, "0")
	own, other := hold(driver.KindPermit, strings.Repeat("1", 32)), hold(driver.KindPermit, strings.Repeat("2", 32))
	require.Equal(t, driver.Granted, n.verdict(own))
	require.Equal(t, driver.Granted, n.verdict(other))
	n.count(driver.KindSemaphore, driver.CountDelete, 0, "1")
	again := n.acquire(own)
	require.Equal(t, driver.Granted, again.Verdict)
	assert.Equal(t, ttl, again.Lease)
	n.pass(ttl / 2)
	assert.Equal(t, driver.Granted, n.Renew(n.now, other).Verdict)
}

// A state of an unknown mode, as of a later version, is not read: its use would panic.
func TestUnknownModes(t *testing.T) {
	known := 0
	for b := range 256 {
		n := newName()
		out := machine.Encode(n.Code)
		out[0] = byte(b) // a varint
		if machine.Decode(out, n.Code) {
			known++
			n.Inspect(n.now, driver.KindMutex)
			n.ForceRelease(n.now)
		}
	}
	assert.Equal(t, 4, known)
}
