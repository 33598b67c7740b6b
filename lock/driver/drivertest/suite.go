package drivertest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// Backend is one place where locks are stored, for one test.
type Backend struct {
	// Open returns a store on the backend, independent of those that it returned before,
	// as if for another process. It ends with t.
	Open func(t testing.TB) driver.Store

	// Prefix begins the name of every lock of the test. It separates tests that share a
	// server. It must not contain a brace.
	Prefix string

	// Delete deletes the lock called name, without a message.
	Delete func(name string)

	// The functions below are optional. A case that needs one that is nil is skipped.

	// Kill returns a store as Open does, for a process that ends when kill is called: its
	// connections break, and it releases nothing. kill returns once the servers have noticed
	// that the connections are broken.
	Kill func(t testing.TB) (s driver.Store, kill func())

	// Late returns a store as Open does, with requests that can be kept on their way.
	Late func(t testing.TB) LateStore

	// Restart ends the servers and starts them again, with their data or without.
	Restart func(data bool)

	// StepClock sets the servers' clocks forward by d, or back if d is negative.
	StepClock func(d time.Duration)
}

// LateStore is a store whose requests can be kept on their way.
type LateStore struct {
	driver.Store
	// Hold keeps what is sent from now on, except so many messages that still arrive. What
	// is a message is up to the store: a write to a connection, or a part of a transaction.
	Hold func(arrive int)
	// Pass ends Hold for what is sent from now on. What it has kept stays on its way.
	Pass func()
	// Deliver delivers what was kept, also for callers that have given up, and returns how
	// many messages or connections these were.
	Deliver func() (late int)
}

// Suite configures a run of the conformance suite.
type Suite struct {
	// Backend returns a backend for one test, which ends with t. Unless Bubble is set,
	// tests run in parallel, after Run has returned. There must be no locks with the
	// backend's prefix yet.
	Backend func(t testing.TB) Backend

	// Own is Backend for a test that restarts the servers or sets their clocks: nothing else
	// uses these servers. Default: Backend.
	Own func(t testing.TB) Backend

	// Kinds are the kinds that the store supports. Default: every kind.
	Kinds []driver.Kind

	// Tested are the kinds whose tests run, for a further backend that differs from a tested
	// one in nothing that depends on the kind. Default: Kinds.
	Tested []driver.Kind

	// Split: clients that ask at the same instant may all be refused, as by a store made
	// of several stores, which such clients split.
	Split bool

	// Uncounted: the store does not record how often an owner holds a lock, which only
	// the owner's process knows.
	Uncounted bool

	// Untokened: the store grants without fencing tokens, which are 0.
	Untokened bool

	// Unkept: the store refuses a release with [driver.Hold.Keep], so that its locks have no MinHold.
	Unkept bool

	// Step is the step in which the store counts TTLs. It rounds a TTL down to one, and may free
	// what has ended up to a step later. Default: none, the store counts in ms.
	Step time.Duration

	// Unclocked: the servers have no clock by which they refuse what arrives late. A request that
	// arrives late is without effect after a release alone, and if its process has died for a TTL.
	Unclocked bool

	// Bubble runs each test in a testing/synctest bubble, for a backend that lives in the
	// test's process and uses the bubble's time.
	Bubble bool
}

// Run checks that a store fulfils the contract of [driver.Store], and that a locker on it
// fulfils that of package lock.
func Run(t *testing.T, s Suite) {
	if s.Step > 0 {
		setTTL.Do(func() { ttl += s.Step })
	}
	mutex := (*lock.Locker).Mutex
	read := func(l *lock.Locker, name string) *lock.Mutex { return l.ReadWrite(name).Read() }
	write := func(l *lock.Locker, name string) *lock.Mutex { return l.ReadWrite(name).Write() }
	for _, group := range []struct {
		name   string
		kind   driver.Kind
		handle func(*lock.Locker, string) *lock.Mutex
		tests  []test
	}{
		{"Store", driver.KindMutex, mutex, slices.Concat(storeTests, queueTests)},
		{"Mutex", driver.KindMutex, mutex, mutexTests},
		{"Multi", driver.KindMutex, mutex, multiTests},
		{"Fair", driver.KindFair, (*lock.Locker).Fair, fairTests},
		{"Write", driver.KindWrite, write, writeTests},
		{"ReadWrite", driver.KindRead, read, readWriteTests},
		{"Semaphore", driver.KindSemaphore, mutex, semaphoreTests},
		{"Permits", driver.KindPermit, mutex, permitTests},
		{"Latch", driver.KindLatch, mutex, latchTests},
		{"Inspect", driver.KindMutex, mutex, inspectTests},
	} {
		if !s.keeps(group.kind) || s.Tested != nil && !slices.Contains(s.Tested, group.kind) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			if !s.Bubble {
				t.Parallel() // with the other groups: most of the time is spent waiting
			}
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) { s.run(t, &bench{kind: group.kind, handle: group.handle}, test.run) })
			}
		})
	}
}

// keeps reports whether the store under test supports a kind of lock.
func (s Suite) keeps(k driver.Kind) bool { return s.Kinds == nil || slices.Contains(s.Kinds, k) }

// test is one test of the suite.
type test struct {
	name string
	run  func(*bench)
}

func (s Suite) run(t *testing.T, b *bench, test func(*bench)) {
	begin := func(t *testing.T, ctx context.Context) {
		b.T, b.Backend, b.suite, b.ctx = t, s.Backend(t), s, ctx
		test(b)
	}
	if !s.Bubble {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), tooLong)
		defer cancel()
		begin(t, ctx)
		return
	}
	synctest.Test(t, func(t *testing.T) { begin(t, t.Context()) })
}

// needing returns the test for a backend that has what the test needs.
func needing(what string, has func(Backend) bool, f func(*bench)) func(*bench) {
	return func(b *bench) {
		if !has(b.Backend) {
			b.Skipf("the backend offers no %s", what)
		}
		f(b)
	}
}

// alone returns the test for a backend of its own that has what the test needs.
func alone(what string, has func(Backend) bool, f func(*bench)) func(*bench) {
	needs := needing(what, has, f)
	return func(b *bench) {
		if b.suite.Own != nil {
			b.Backend = b.suite.Own(b.T)
		}
		needs(b)
	}
}

// tooLong bounds a test in real time. A test that hangs fails by its name, and not by the
// timeout of the package.
const tooLong = 3 * time.Minute

// bench is the environment of a test.
type bench struct {
	*testing.T
	Backend
	suite Suite
	kind  driver.Kind // of the tested locks
	ctx   context.Context
	// handle returns a handle of the tested kind, or a mutex.
	handle func(l *lock.Locker, name string) *lock.Mutex
}

// Context returns a context that ends with the test, or after tooLong.
func (b *bench) Context() context.Context { return b.ctx }

// name returns the full name of a lock.
func (b *bench) name(short string) string { return b.Prefix + short }

// delete deletes a lock without a message.
func (b *bench) delete(short string) { b.Delete(b.name(short)) }

// deleteUntil deletes a lock until done delivers or is closed, and returns what. ok is false if
// that takes too long. On several servers one deletion may not be enough: a renewal between two of
// the servers' deletions restores the first.
func deleteUntil[T any](b *bench, short string, done <-chan T) (what T, ok bool) {
	for begin := time.Now(); time.Since(begin) < soon; {
		b.delete(short)
		select {
		case what = <-done:
			return what, true
		case <-time.After(interval()):
		}
	}
	return what, false
}

// ttl is short enough to wait for in real time, and long enough for a busy machine. For a store
// that counts in steps it is longer; Run sets it.
var ttl = 1200 * time.Millisecond

// setTTL makes ttl longer by a step.
var setTTL sync.Once

// soon bounds operations that need no wait.
const soon = 20 * time.Second

// hung is the limit of an acquisition that waits for other holders of the test, and for the
// machine. In real time only a hang reaches it.
func (b *bench) hung() time.Duration {
	if b.suite.Bubble {
		return soon
	}
	return time.Minute
}

// late is how much the machine may add to a wait: nothing in virtual time.
func (b *bench) late() time.Duration {
	if b.suite.Bubble {
		return 0
	}
	return soon
}

// over returns after which time a hold has certainly ended that was granted for a TTL.
func (b *bench) over(ttl time.Duration) time.Duration {
	return ttl + 50*time.Millisecond + b.suite.Step
}

// kept returns for how long a permit is taken at least that was granted for a TTL: a store counts
// it in ms, from the last whole one.
func (b *bench) kept(ttl time.Duration) time.Duration {
	return ttl - time.Millisecond - b.suite.Step
}

// store returns a new store on the backend.
func (b *bench) store() driver.Store {
	b.Helper()
	return b.Open(b.T)
}

// locker returns a new locker on a new store. In real time, requests have as long as a
// busy machine may take.
func (b *bench) locker(c lock.Config) *lock.Locker {
	b.Helper()
	return b.lockerOn(b.store(), c)
}

func (b *bench) lockerOn(store driver.Store, c lock.Config) *lock.Locker {
	b.Helper()
	if c.RequestTimeout == 0 && !b.suite.Bubble {
		c.RequestTimeout = soon
	}
	l, err := lock.New(store, c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := l.Close(); err != nil {
			b.Errorf("closing a locker: %v", err)
		}
	})
	return l
}
