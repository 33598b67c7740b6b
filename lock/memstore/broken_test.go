package memstore_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/driver/drivertest"
	"github.com/leasewheel/leasewheel/lock/locktest/backend"
	"github.com/leasewheel/leasewheel/renewal"
)

// brokenStore is the environment variable with the name of the fault that TestInBubble's store has.
const brokenStore = "BROKEN_STORE"

// faults are faults of stores, and a case of the suite that reports each.
var faults = map[string]struct {
	reportedBy string
	backend    func(t testing.TB) drivertest.Backend
}{
	"no deadline is checked":              {"Store/GrantsNothingLate", breaking(withoutDeadlines)},
	"no deadline of renewals is checked":  {"Store/RenewsNothingLate", breaking(withoutDeadlines)},
	"no deadline of counts is checked":    {"Semaphore/CountsNothingLate", breaking(withoutDeadlines)},
	"a release misses what is under way":  {"Store/ReleasesWhatIsUnderWay", breaking(inTwoSteps)},
	"the TTL is a timer of the process":   {"Store/FreesTheDeadAfterTheTTL", breaking(timedByTheProcess)},
	"dead waiters count as alive":         {"Store/SkipsDeadWaiters", immortalWaiters},
	"tokens are the clock":                {"Store/TokensGrowWhenClocksAreSetBack", tokensOfTheClock},
	"no data survive a restart":           {"Store/KeepsItsHoldsThroughARestart", forgetfulServers},
	"renewals last for half of their TTL": {"Store/RenewsForTheTTL", breaking(renewedByHalf)},
	"a request outlives its deadline":     {"Store/HeedsTheContext", breaking(patient)},
	"a renewal needs no data":             {"Store/GrantsAnewOnceItsDataAreLost", breaking(renewedByMemory)},
	"no writer is woken":                  {"ReadWrite/ReadsTogether", breaking(mute)},
	"no waiter of a forced lock is woken": {"Inspect/ForcesEachKindOpen", breaking(mute)},
}

// Each fault is reported by an assertion of its case.
func TestSuiteReportsFaults(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(os.Args[0], "-test.run", "^TestInBubble$/"+f.reportedBy+"$", "-test.timeout", "2m")
			command.Env = append(os.Environ(), brokenStore+"="+name, "GORACE=atexit_sleep_ms=10")
			out, err := command.CombinedOutput()
			require.Error(t, err)
			assert.Contains(t, string(out), "--- FAIL: TestInBubble/"+f.reportedBy)
			assert.NotContains(t, string(out), "panic: ")
			t.Logf("%s", out)
		})
	}
}

// store is the store that is broken.
type store = backend.Memory

// breaking returns a backend of stores that each have a fault.
func breaking(fault func(t testing.TB, s store) driver.Store) func(testing.TB) drivertest.Backend {
	return func(testing.TB) drivertest.Backend {
		return backend.InMemory(1, func(t testing.TB, memories ...backend.Memory) driver.Store { return fault(t, memories[0]) })
	}
}

// within runs a request without a deadline, and returns when it has or ctx has ended.
func within[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	answered := make(chan result, 1)
	go func() {
		value, err := request(context.WithoutCancel(ctx))
		answered <- result{value, err}
	}()
	select {
	case r := <-answered:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
}

type deadlineless struct{ store }

// withoutDeadlines returns a store whose requests have no deadline at the server.
func withoutDeadlines(_ testing.TB, s store) driver.Store { return deadlineless{s} }

func (s deadlineless) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	hold := *h
	return within(ctx, func(ctx context.Context) (driver.Answer, error) { return s.store.Acquire(ctx, &hold) })
}

func (s deadlineless) Count(ctx context.Context, c *driver.Count) (driver.Counted, error) {
	count := *c
	return within(ctx, func(ctx context.Context) (driver.Counted, error) { return s.store.Count(ctx, &count) })
}

func (s deadlineless) Renew(ctx context.Context, items []renewal.Item) {
	own := append([]renewal.Item(nil), items...)
	renewed, err := within(ctx, func(ctx context.Context) ([]renewal.Item, error) {
		s.store.Renew(ctx, own)
		return own, nil
	})
	copy(items, renewed)
	for i := range items {
		if err != nil {
			items[i].Err = err
		}
	}
}

type twoSteps struct{ store }

// inTwoSteps returns a store whose acquisitions begin, where their deadline is checked, and
// take effect later. A release in between finds nothing.
func inTwoSteps(_ testing.TB, s store) driver.Store { return twoSteps{s} }

func (s twoSteps) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	hold := *h
	if _, err := s.Inspect(ctx, hold.Name, driver.KindMutex); err != nil {
		return driver.Answer{}, err
	}
	return within(ctx, func(ctx context.Context) (driver.Answer, error) { return s.store.Acquire(ctx, &hold) })
}

type ownTimer struct {
	store
	t testing.TB
}

// timedByTheProcess returns a store whose holds end by timers of the process.
func timedByTheProcess(t testing.TB, s store) driver.Store { return ownTimer{s, t} }

func (s ownTimer) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	hold, end := *h, *h
	hold.TTL, end.Count = time.Hour, 0
	timer := time.AfterFunc(h.TTL, func() { _, _ = s.Release(context.Background(), &end) })
	s.t.Cleanup(func() { timer.Stop() })
	return s.store.Acquire(ctx, &hold)
}

type clocked struct {
	store
	ahead *atomic.Int64
}

func (s clocked) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	answer, err := s.store.Acquire(ctx, h)
	if answer.Verdict == driver.Granted {
		answer.Token = time.Now().Add(time.Duration(s.ahead.Load())).UnixMicro()
	}
	return answer, err
}

// tokensOfTheClock is a backend whose stores take tokens from the clock alone.
func tokensOfTheClock(t testing.TB) drivertest.Backend {
	ahead := new(atomic.Int64)
	b := breaking(func(_ testing.TB, s store) driver.Store { return clocked{s, ahead} })(t)
	b.StepClock = func(d time.Duration) { ahead.Add(int64(d)) }
	return b
}

type immortal struct {
	store
	listener driver.Store
}

func (s immortal) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	return s.listener.Subscribe(ctx, h, notify)
}

// immortalWaiters is a backend at which the subscriptions of a killed process live on.
func immortalWaiters(t testing.TB) drivertest.Backend {
	b := intact(t)
	kill := b.Kill
	b.Kill = func(t testing.TB) (driver.Store, func()) {
		s, kill := kill(t)
		return immortal{s.(store), b.Open(t)}, kill
	}
	return b
}

// forgetfulServers is a backend that loses its data at every restart.
func forgetfulServers(t testing.TB) drivertest.Backend {
	b := intact(t)
	restart := b.Restart
	b.Restart = func(bool) { restart(false) }
	return b
}

type remembering struct{ store }

// renewedByMemory returns a store that does not ask its server at a renewal.
func renewedByMemory(_ testing.TB, s store) driver.Store { return remembering{s} }

func (remembering) Renew(_ context.Context, items []renewal.Item) {
	for i := range items {
		items[i].Outcome = renewal.Renewed
	}
}

type halving struct{ store }

// renewedByHalf returns a store whose renewals are shorter than requested.
func renewedByHalf(_ testing.TB, s store) driver.Store { return halving{s} }

func (s halving) Renew(ctx context.Context, items []renewal.Item) {
	for i := range items {
		items[i].TTL /= 2
	}
	s.store.Renew(ctx, items)
}

type unbounded struct{ store }

// patient returns a store whose releases do not end with their contexts.
func patient(_ testing.TB, s store) driver.Store { return unbounded{s} }

func (s unbounded) Release(ctx context.Context, h *driver.Hold) (bool, error) {
	held, err := s.store.Release(ctx, h)
	if ctx.Err() != nil {
		time.Sleep(time.Hour)
	}
	return held, err
}

type silent struct{ store }

// mute returns a store that wakes no waiter.
func mute(_ testing.TB, s store) driver.Store { return silent{s} }

func (s silent) Subscribe(ctx context.Context, h *driver.Hold, _ func(driver.Notice)) (driver.Subscription, error) {
	return s.store.Subscribe(ctx, h, func(driver.Notice) {})
}
