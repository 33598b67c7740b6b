package elect_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/retry"
)

var errWork = errors.New("the work failed")

// report is what a leader reports: the begin of a term, or its end with the context's
// cause.
type report struct {
	who   string
	term  int64
	cause error // nil at the begin
}

// candidate runs a candidate that leads until its context ends. The result of its Run is
// sent to the returned channel.
func candidate(ctx context.Context, l *lock.Locker, who string, reports chan<- report) <-chan error {
	result := make(chan error, 1)
	go func() {
		result <- elect.New(l, "leader", lock.Options{}).Run(ctx, func(ctx context.Context, term int64) error {
			reports <- report{who: who, term: term}
			<-ctx.Done()
			reports <- report{who, term, context.Cause(ctx)}
			return ctx.Err()
		})
	}()
	return result
}

// One candidate leads at a time. The next is elected when the first stops, with a larger
// term.
func TestOneLeadsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		reports := make(chan report)
		stops, results := map[string]context.CancelFunc{}, map[string]<-chan error{}
		lockers := map[string]*lock.Locker{}
		for _, who := range []string{"a", "b", "c"} {
			ctx, cancel := context.WithCancel(t.Context())
			lockers[who] = server.Locker(t, lock.Config{})
			stops[who], results[who] = cancel, candidate(ctx, lockers[who], who, reports)
		}
		term := int64(0)
		for range 3 {
			elected := <-reports
			require.NoError(t, elected.cause)
			require.Greater(t, elected.term, term)
			term = elected.term
			time.Sleep(5 * time.Minute)
			select {
			case other := <-reports:
				require.Fail(t, "two lead", "%+v beside %+v", other, elected)
			default:
			}
			leader, err := elect.New(lockers["a"], "leader", lock.Options{}).Leader(t.Context())
			require.NoError(t, err)
			assert.Equal(t, lockers[elected.who].ClientID(), leader.Client.ID)
			assert.NotZero(t, leader.Client.PID)

			stops[elected.who]()
			ended := <-reports
			require.Equal(t, elected.who, ended.who)
			require.ErrorIs(t, ended.cause, context.Canceled)
			require.ErrorIs(t, <-results[elected.who], context.Canceled)
		}
		_, err := elect.New(lockers["a"], "leader", lock.Options{}).Leader(t.Context())
		require.ErrorIs(t, err, elect.ErrNoLeader)
	})
}

// handover receives the end of a term by a loss and the begin of the next one, in either
// order: a deletion is noticed late.
func handover(t *testing.T, reports <-chan report, of report) (next report) {
	t.Helper()
	one, other := <-reports, <-reports
	if one.cause == nil {
		one, other = other, one
	}
	require.Equal(t, of.who, one.who)
	require.Equal(t, of.term, one.term)
	require.ErrorIs(t, one.cause, lock.ErrLost)
	require.NoError(t, other.cause)
	require.NotEqual(t, of.who, other.who)
	require.Greater(t, other.term, of.term)
	return other
}

// A leader whose lock is lost stands again behind the next one, even if
// its function returned an error because of the loss.
func TestLostLeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t) // its Delete leaves the queue, in which the first waits
		reports := make(chan report)
		ctx, cancel := context.WithCancel(t.Context())
		first := candidate(ctx, server.Locker(t, lock.Config{}), "first", reports)
		elected := <-reports
		second := candidate(ctx, server.Locker(t, lock.Config{}), "second", reports)
		synctest.Wait()
		_, err := server.Locker(t, lock.Config{}).ForceRelease(t.Context(), "leader")
		require.NoError(t, err)
		next := handover(t, reports, elected)
		synctest.Wait() // the first stands again, behind the second
		server.Delete("leader")
		handover(t, reports, next)
		cancel()
		require.ErrorIs(t, (<-reports).cause, context.Canceled)
		require.ErrorIs(t, <-first, context.Canceled)
		require.ErrorIs(t, <-second, context.Canceled)
	})
}

// The function's result decides what follows: an error or nil ends Run, ErrResign lets
// others lead and stands again.
func TestResignation(t *testing.T) {
	for name, test := range map[string]struct{ returned, want error }{
		"WithoutAnError": {nil, nil},
		"WithAnError":    {errWork, errWork},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				l := server.Locker(t, lock.Config{})
				err := elect.New(l, "leader", lock.Options{}).Run(t.Context(), func(ctx context.Context, _ int64) error {
					leader, err := elect.New(l, "leader", lock.Options{}).Leader(ctx)
					require.NoError(t, err)
					require.Equal(t, l.ClientID(), leader.Client.ID)
					return test.returned
				})
				require.Equal(t, test.want, err)
				_, err = elect.New(l, "leader", lock.Options{}).Leader(t.Context())
				require.ErrorIs(t, err, elect.ErrNoLeader)
			})
		})
	}
	t.Run("InFavourOfOthers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := locktest.StartMemory(t)
			ctx, cancel := context.WithCancel(t.Context())
			var order []string
			begin := time.Now()
			resigning := func(who string) func() error {
				l := server.Locker(t, lock.Config{})
				return func() error {
					return elect.New(l, "leader", lock.Options{}).Run(ctx, func(context.Context, int64) error {
						if order = append(order, who); len(order) == 10 {
							cancel()
						}
						return elect.ErrResign
					})
				}
			}
			other := make(chan error)
			go func() { other <- resigning("a")() }()
			require.ErrorIs(t, resigning("b")(), context.Canceled)
			require.ErrorIs(t, <-other, context.Canceled)
			assert.Len(t, order, 10)
			for i := 0; i < len(order); i += 2 {
				assert.NotEqual(t, order[i], order[i+1], "each leads once a second: %q", order)
			}
			assert.GreaterOrEqual(t, time.Since(begin), 4*time.Second, "each waits a second before it stands again")
		})
	})
}

// When Run's context ends, the error has the cause, and the leader's own error if that says
// more.
func TestRunEndsWithItsContext(t *testing.T) {
	cause := errors.New("deploy")
	for name, test := range map[string]struct {
		lead func(ctx context.Context) error
		also error
	}{
		"Obedient":       {func(ctx context.Context) error { <-ctx.Done(); return nil }, nil},
		"WithTheCause":   {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, nil},
		"Cancelled":      {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil},
		"Resigning":      {func(ctx context.Context) error { <-ctx.Done(); return elect.ErrResign }, nil},
		"WithItsOwn":     {func(ctx context.Context) error { <-ctx.Done(); return errWork }, errWork},
		"WithBoth":       {func(ctx context.Context) error { <-ctx.Done(); return errors.Join(ctx.Err(), errWork) }, errWork},
		"BeforeElection": {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				other := server.Locker(t, lock.Config{})
				if test.lead == nil {
					lease, err := other.Mutex("leader").TryLock(t.Context())
					require.NoError(t, err)
					defer func() { require.NoError(t, lease.Unlock(t.Context())) }()
				}
				time.AfterFunc(time.Minute, func() { cancel(cause) })
				err := elect.New(server.Locker(t, lock.Config{}), "leader", lock.Options{}).Run(ctx, func(ctx context.Context, _ int64) error { return test.lead(ctx) })
				if test.also == nil {
					require.Equal(t, cause, err)
				} else {
					require.ErrorIs(t, err, cause)
					require.ErrorIs(t, err, test.also)
				}
				if test.lead != nil {
					_, err = elect.New(other, "leader", lock.Options{}).Leader(t.Context())
					require.ErrorIs(t, err, elect.ErrNoLeader, "it is released")
				}
			})
		})
	}
}

func TestRunPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{})
		e := elect.New(l, "leader", lock.Options{})
		require.PanicsWithValue(t, "it fails", func() {
			_ = e.Run(t.Context(), func(context.Context, int64) error { panic("it fails") })
		})
		_, err := e.Leader(t.Context())
		require.ErrorIs(t, err, elect.ErrNoLeader)
		require.PanicsWithValue(t, "elect: Run: the function is nil", func() { _ = e.Run(t.Context(), nil) })
	})
}

// slowRelease is a store whose releases take half a second.
type slowRelease struct{ driver.Store }

func (s slowRelease) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	select {
	case <-time.After(time.Second / 2):
		return s.Store.Release(ctx, h)
	case <-ctx.Done():
		return false, fmt.Errorf("%w: %w", lock.ErrUnavailable, context.Cause(ctx))
	}
}

// A leadership whose function has returned is released before Run returns, even if Run's context
// ends meanwhile.
func TestReleaseOutlastsRunsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l, err := lock.New(slowRelease{server.Store(t)}, lock.Config{})
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = elect.New(l, "leader", lock.Options{}).Run(ctx, func(context.Context, int64) error {
			time.Sleep(time.Second - time.Millisecond)
			return nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = elect.New(server.Locker(t, lock.Config{}), "leader", lock.Options{}).Leader(t.Context())
		require.ErrorIs(t, err, elect.ErrNoLeader)
	})
}

// Errors that waiting would not mend are returned.
func TestRunRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		lead := func(context.Context, int64) error {
			t.Error("it was elected")
			return nil
		}
		l := server.Locker(t, lock.Config{})
		var name *lock.NameError
		require.ErrorAs(t, elect.New(l, "", lock.Options{}).Run(t.Context(), lead), &name)
		_, err := elect.New(l, "", lock.Options{}).Leader(t.Context())
		require.ErrorAs(t, err, &name)
		require.ErrorContains(t, elect.New(l, "leader", lock.Options{MaxHold: -1}).Run(t.Context(), lead), "negative")
		for _, o := range []lock.Options{{Passes: 1}, {MinHold: time.Hour}} {
			require.ErrorContains(t, elect.New(l, "leader", o).Run(t.Context(), lead), "delay the next leader")
		}
		heartbeat := lock.Options{Heartbeat: time.Hour}
		require.ErrorContains(t, elect.New(l, "leader", heartbeat).Run(t.Context(), lead), "use Options.Alive")
		reader, err := l.ReadWrite("read").Read().TryLock(t.Context())
		require.NoError(t, err)
		_, err = elect.New(l, "read", lock.Options{}).Leader(t.Context())
		require.ErrorIs(t, err, lock.ErrForeign)
		require.NoError(t, reader.Unlock(t.Context()))
		_, err = elect.New(l, "read", lock.Options{}).Leader(t.Context())
		require.ErrorIs(t, err, elect.ErrNoLeader)
		fair, err := l.Fair("fair").TryLock(t.Context())
		require.NoError(t, err)
		another := server.Locker(t, lock.Config{})
		next := make(chan struct{})
		go func() {
			defer close(next)
			lease, err := another.Fair("fair").Lock(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Unlock(t.Context()))
			}
		}()
		synctest.Wait()
		leader, err := elect.New(l, "fair", lock.Options{}).Leader(t.Context())
		require.NoError(t, err)
		require.Equal(t, l.ClientID(), leader.Client.ID)
		require.NoError(t, fair.Unlock(t.Context()))
		<-next
		require.NoError(t, server.Client(t).Set(t.Context(), "foreign", "x", 0).Err())
		_, err = elect.New(l, "foreign", lock.Options{}).Leader(t.Context())
		require.ErrorIs(t, err, lock.ErrForeign)
		require.NoError(t, l.Close())
		require.ErrorIs(t, elect.New(l, "leader", lock.Options{}).Run(t.Context(), lead), lock.ErrClosed)
	})
}

// A grant that is lost before it can be used, and a full queue, are waited for.
func TestRunStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{MaxWaiters: 1})
		taken, err := server.Locker(t, lock.Config{}).Mutex("leader").TryLock(t.Context())
		require.NoError(t, err)
		go func() {
			if lease, err := l.Mutex("leader").Lock(t.Context()); err == nil {
				time.Sleep(time.Minute)
				assert.NoError(t, lease.Unlock(context.Background()))
			}
		}()
		synctest.Wait()
		time.AfterFunc(10*time.Second, func() { assert.NoError(t, taken.Unlock(context.Background())) })
		begin := time.Now()
		err = elect.New(l, "leader", lock.Options{}).Run(t.Context(), func(context.Context, int64) error { return errWork })
		require.Equal(t, errWork, err)
		assert.GreaterOrEqual(t, time.Since(begin), 70*time.Second)
	})
}

// A policy that ends the retries of a lock does not end the candidacy.
func TestRunOutlastsItsRetries(t *testing.T) {
	for name, policy := range map[string]retry.Policy{
		"Limited": retry.Every(time.Second).Limited(2),
		"Panics":  func(int) (time.Duration, bool) { panic("no pause") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.StartMemory(t)
				taken, err := server.Locker(t, lock.Config{}).Mutex("leader").TryLock(t.Context())
				require.NoError(t, err)
				time.AfterFunc(time.Minute, func() { assert.NoError(t, taken.Unlock(context.Background())) })
				e := elect.New(server.Locker(t, lock.Config{}), "leader", lock.Options{Retry: policy})
				require.Equal(t, errWork, e.Run(t.Context(), func(context.Context, int64) error { return errWork }))
			})
		})
	}
}

// A leader whose locker shuts down is replaced at once.
func TestShutdownEndsALeadership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := locktest.StartMemory(t)
		reports := make(chan report, 10)
		l := server.Locker(t, lock.Config{TTL: time.Hour})
		result := candidate(t.Context(), l, "first", reports)
		require.Equal(t, "first", (<-reports).who)
		ctx, cancel := context.WithCancel(t.Context())
		next := candidate(ctx, server.Locker(t, lock.Config{}), "next", reports)
		synctest.Wait()
		begin := time.Now()
		limit, done := context.WithTimeout(t.Context(), time.Second)
		defer done()
		require.ErrorIs(t, l.Shutdown(limit), context.DeadlineExceeded)
		said := map[string]report{}
		for range 2 { // in the same instant, the next leader may be the first to report
			r := <-reports
			said[r.who] = r
		}
		require.ErrorIs(t, said["first"].cause, lock.ErrLost)
		require.NoError(t, said["next"].cause)
		require.Greater(t, said["next"].term, said["first"].term)
		require.ErrorIs(t, <-result, lock.ErrClosed)
		assert.Less(t, time.Since(begin), 3*time.Second)
		cancel()
		require.ErrorIs(t, <-next, context.Canceled)
	})
}

// A candidate that stands with the context of a leader waits like any other: it leads in a
// term of its own, once that leader has resigned.
func TestCandidateWithALeadersContextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := elect.New(locktest.New(t, lock.Config{}), "leader", lock.Options{})
		var leads atomic.Bool // the first
		terms, ended := make(chan int64, 2), make(chan error, 1)
		require.NoError(t, e.Run(t.Context(), func(ctx context.Context, term int64) error {
			terms <- term
			leads.Store(true)
			go func() {
				ended <- e.Run(context.WithoutCancel(ctx), func(_ context.Context, term int64) error {
					assert.False(t, leads.Load(), "two lead")
					terms <- term
					return nil
				})
			}()
			time.Sleep(time.Minute)
			leads.Store(false)
			return nil
		}))
		require.NoError(t, <-ended)
		first := <-terms
		require.Greater(t, <-terms, first)
	})
}

// Nor does a candidate lead beside a holder of the mutex whose context it stands with.
func TestCandidateWithAHoldersContextWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locktest.New(t, lock.Config{})
		lease, err := l.Mutex("leader").Lock(t.Context())
		require.NoError(t, err)
		var held atomic.Bool
		held.Store(true)
		ended := make(chan error, 1)
		go func() {
			ended <- elect.New(l, "leader", lock.Options{}).Run(context.WithoutCancel(lease.Context()), func(_ context.Context, term int64) error {
				assert.False(t, held.Load(), "it leads beside the holder")
				assert.Greater(t, term, lease.Token())
				return nil
			})
		}()
		time.Sleep(time.Minute)
		held.Store(false)
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-ended)
	})
}
