package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// observed collects the reports of an observer.
type observed struct {
	mu       sync.Mutex
	acquired []observe.Acquired // guarded by mu
	ended    []observe.Ended    // guarded by mu
	values   []any              // guarded by mu; of the contexts, in the order of the reports
}

type traceKey struct{}

func (o *observed) observer() *observe.Observer {
	return &observe.Observer{
		Acquired: func(ctx context.Context, a observe.Acquired) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.acquired, o.values = append(o.acquired, a), append(o.values, ctx.Value(traceKey{}))
		},
		Ended: func(ctx context.Context, e observe.Ended) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.ended, o.values = append(o.ended, e), append(o.values, ctx.Value(traceKey{}))
		},
	}
}

// take returns the reports since the last call.
func (o *observed) take() (acquired []observe.Acquired, ended []observe.Ended) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	acquired, ended = o.acquired, o.ended
	o.acquired, o.ended = nil, nil
	return acquired, ended
}

// Every acquisition is reported with its wait and its result, and every grant's end once,
// however the lock was acquired.
func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{Observer: o.observer()})
		other := server.Locker(t, lock.Config{})
		_, err := l.Permits("permits").TrySetPermits(t.Context(), 1)
		require.NoError(t, err)
		ctx := context.WithValue(t.Context(), traceKey{}, "trace")
		const held, waited = 5 * time.Second, 3 * time.Second
		job := func(context.Context) error {
			time.Sleep(held)
			return nil
		}
		for name, test := range map[string]struct {
			kind driver.Kind
			use  func() error
		}{
			"do":      {driver.KindMutex, func() error { return l.Mutex("do").Do(ctx, job) }},
			"fair":    {driver.KindFair, func() error { return l.Fair("fair").MaxWait(time.Hour).Do(ctx, job) }},
			"read":    {driver.KindRead, func() error { return l.ReadWrite("read").Read().MaxWait(0).Do(ctx, job) }},
			"write":   {driver.KindWrite, func() error { return l.ReadWrite("write").Write().Do(ctx, job) }},
			"permits": {driver.KindPermit, func() error { return l.Permits("permits").One().Do(ctx, job) }},
			"multi":   {driver.KindMutex, func() error { return lock.All(l.Mutex("multi")).Do(ctx, job) }},
			"deferred": {driver.KindMutex, func() error {
				d, err := l.Mutex("deferred").Go(ctx, job)
				require.NoError(t, err)
				return d.Wait(ctx)
			}},
			"again": {driver.KindMutex, func() error {
				return l.Mutex("again").Do(ctx, func(ctx context.Context) error { return l.Mutex("again").Do(ctx, job) })
			}},
		} {
			require.NoError(t, test.use(), name)
			acquired, ended := o.take()
			require.Equal(t, []observe.Acquired{{Kind: test.kind, Name: name, Outcome: observe.Granted}}, acquired)
			require.Len(t, ended, 1, name)
			about(t, held, ended[0].Held)
			ended[0].Held = 0
			require.Equal(t, []observe.Ended{{Kind: test.kind, Name: name, Outcome: observe.Released}}, ended)
		}
		for _, value := range o.values {
			require.Equal(t, "trace", value)
		}

		theirs := lockNow(t, other.Mutex("a"))
		for _, wait := range []func() error{
			func() error { return l.Mutex("a").MaxWait(waited).Do(ctx, never(t)) },
			func() error {
				d, err := l.Mutex("a").MaxWait(waited).Go(ctx, never(t))
				require.NoError(t, err)
				return d.Wait(ctx)
			},
		} {
			require.ErrorIs(t, wait(), lock.ErrNotAcquired)
			acquired, ended := o.take()
			require.Len(t, acquired, 1)
			about(t, waited, acquired[0].Waited)
			require.Equal(t, acquired[0].Waited, acquired[0].Queued)
			require.ErrorIs(t, acquired[0].Err, lock.ErrNotAcquired)
			require.Equal(t, observe.Refused, acquired[0].Outcome)
			require.Empty(t, ended)
		}
		time.AfterFunc(waited, func() { unlock(t, theirs) })
		unlock(t, mustLock(t, l.Mutex("a")))
		acquired, ended := o.take()
		require.NoError(t, acquired[0].Err)
		about(t, waited, acquired[0].Waited)
		require.Equal(t, observe.Granted, acquired[0].Outcome)
		require.NoError(t, ended[0].Err)
		require.Equal(t, observe.Released, ended[0].Outcome)

		s := l.Stats()
		assert.Equal(t, []int64{9, 1, 0, 2, 0}, []int64{s.Granted, s.ByRelease, s.HandedOff, s.Refused, s.Failed})
	})
}

// With Config.MaxWaiters a call of Go ends as one of Lock, and is counted and reported as that.
func TestObserverOfTooManyWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		l := locktest.New(t, lock.Config{MaxWaiters: 1, Observer: o.observer()})
		m := l.Mutex("a")
		lease := lockNow(t, m)
		waits, err := m.Go(t.Context(), func(context.Context) error { return nil })
		require.NoError(t, err)
		o.take()
		for _, call := range []func() error{
			func() error { return m.Do(t.Context(), never(t)) },
			func() error {
				_, err := m.Go(t.Context(), never(t))
				return err
			},
		} {
			refused := l.Stats().Refused
			err := call()
			require.ErrorIs(t, err, lock.ErrTooManyWaiters)
			acquired, _ := o.take()
			require.Len(t, acquired, 1)
			require.Equal(t, observe.Refused, acquired[0].Outcome)
			require.Equal(t, err, acquired[0].Err)
			require.Equal(t, refused+1, l.Stats().Refused)
		}
		unlock(t, lease)
		require.NoError(t, waits.Wait(t.Context()))
	})
}

// An acquisition in which the store panics is counted and reported as one that has failed, by its
// first request and by one in the queue.
func TestObserverOfPanics(t *testing.T) {
	for name, call := range map[string]func(*testing.T, *lock.Mutex){
		"Lock": func(t *testing.T, m *lock.Mutex) {
			assert.Panics(t, func() { _, _ = m.Lock(t.Context()) })
		},
		"Go": func(t *testing.T, m *lock.Mutex) {
			d, err := m.Go(t.Context(), never(t))
			require.NoError(t, err)
			var p *lock.PanicError
			require.ErrorAs(t, d.Wait(t.Context()), &p)
		},
		"GoOnce": func(t *testing.T, m *lock.Mutex) {
			d, err := m.MaxWait(0).Go(t.Context(), never(t))
			require.NoError(t, err)
			var p *lock.PanicError
			require.ErrorAs(t, d.Wait(t.Context()), &p)
		},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", name, waits), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var o observed
					f := &faulty{Store: locktest.StartMemory(t).Store(t)}
					l, err := lock.New(f, lock.Config{Observer: o.observer()})
					require.NoError(t, err)
					defer func() { require.NoError(t, l.Close()) }()
					m := l.Mutex("a")
					if waits {
						lease := lockNow(t, m)
						defer unlock(t, lease)
						o.take()
					}
					asked := f.asked()
					f.set(func() {
						f.acquire = func(_ context.Context, do func() error) error {
							if waits && f.asked() == asked+1 && name != "GoOnce" { // it is refused, and waits
								return do()
							}
							panic("a hook's")
						}
					})
					call(t, m)
					acquired, _ := o.take()
					require.Len(t, acquired, 1)
					assert.Equal(t, observe.Failed, acquired[0].Outcome)
					require.Error(t, acquired[0].Err)
					assert.EqualValues(t, 1, l.Stats().Failed)
				})
			})
		}
	}
}

// A loss is reported once, whether the watchdog or Unlock is first to notice it. A hold
// that the store lost without notice ends with its Unlock's error.
func TestObserverOfLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{Observer: o.observer()})
		lease := lockNow(t, l.Mutex("expired").With(lock.Options{TTL: time.Second, Fixed: true}))
		<-lease.Lost()
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		_, ended := o.take()
		require.Len(t, ended, 1)
		var loss *lock.LostError
		require.ErrorAs(t, ended[0].Err, &loss)
		require.Equal(t, renewal.Expired, loss.Cause)
		require.Equal(t, observe.Lost, ended[0].Outcome)

		lease = lockNow(t, l.Mutex("deleted"))
		server.Delete("deleted")
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		_, ended = o.take()
		require.Len(t, ended, 1)
		require.ErrorIs(t, ended[0].Err, lock.ErrLost)

		lockNow(t, l.Mutex("closed"))
		require.NoError(t, l.Close())
		_, ended = o.take()
		require.Len(t, ended, 1)
		require.ErrorAs(t, ended[0].Err, &loss)
		require.Equal(t, renewal.Closed, loss.Cause)
	})
}

// The end of a hold is reported after its grant, also if the observer takes longer over that than the
// hold lasts.
func TestObserverOfALossDuringItsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		slow := o.observer()
		acquired := slow.Acquired
		slow.Acquired = func(ctx context.Context, a observe.Acquired) {
			time.Sleep(2 * time.Second)
			_, ended := o.take()
			assert.Empty(t, ended)
			acquired(ctx, a)
		}
		l := locktest.New(t, lock.Config{Observer: slow})
		lease := lockNow(t, l.Mutex("a").With(lock.Options{TTL: time.Second, Fixed: true}))
		grants, ended := o.take()
		require.Len(t, grants, 1)
		require.Len(t, ended, 1)
		require.Equal(t, observe.Lost, ended[0].Outcome)
		require.ErrorIs(t, lease.Unlock(t.Context()), lock.ErrLost)
		_, ended = o.take()
		require.Empty(t, ended)
	})
}

// Each holder of a lock that is handed off within the process is reported by itself.
func TestObserverOfHandOffs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		l := locktest.New(t, lock.Config{Observer: o.observer()})
		m := l.Mutex("a").With(lock.Options{Passes: 100, PassFor: time.Hour})
		hadAHolder(t, l)
		o.take()
		first := lockNow(t, m)
		second := await(t, m)
		synctest.Wait()
		time.Sleep(time.Second)
		unlock(t, first)
		lease := <-second
		time.Sleep(2 * time.Second)
		unlock(t, lease)
		acquired, ended := o.take()
		require.Len(t, acquired, 2)
		require.Equal(t, []observe.Outcome{observe.Granted, observe.HandedOff}, []observe.Outcome{acquired[0].Outcome, acquired[1].Outcome})
		about(t, time.Second, acquired[1].Waited)
		require.Zero(t, acquired[0].Queued)
		require.Equal(t, acquired[1].Waited, acquired[1].Queued)
		require.Len(t, ended, 2)
		about(t, time.Second, ended[0].Held)
		about(t, 2*time.Second, ended[1].Held)
		s := l.Stats()
		assert.Equal(t, []int64{2, 1}, []int64{s.Granted, s.HandedOff})
	})
}

// A grant whose caller has left is no hold: it is reported as a failed acquisition alone.
func TestObserverOfALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		l, store := faultyLocker(t, locktest.StartMemory(t), lock.Config{Observer: o.observer()})
		ctx, cancel := context.WithCancel(t.Context())
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				cancel()
				return do()
			}
		})
		_, err := l.Mutex("a").Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		time.Sleep(time.Minute)
		acquired, ended := o.take()
		require.Len(t, acquired, 1)
		require.ErrorIs(t, acquired[0].Err, context.Canceled)
		require.Equal(t, observe.Failed, acquired[0].Outcome)
		require.Empty(t, ended)
		assert.EqualValues(t, 1, l.Stats().Failed)
	})
}

// An observer that panics harms no acquisition and no release.
func TestObserverPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Observer: &observe.Observer{
				Acquired: func(context.Context, observe.Acquired) { panic("one") },
				Ended:    func(context.Context, observe.Ended) { panic(errors.New("two")) },
			},
		})
		unlock(t, lockNow(t, l.Mutex("a")))
		unlock(t, lockNow(t, server.Locker(t, lock.Config{}).Mutex("a")))
		synctest.Wait()
		assert.Equal(t, 1, log.count(`msg="lock: panic in Observer.Acquired" panic=one`))
		assert.Equal(t, 1, log.count(`msg="lock: panic in Observer.Ended" panic=two`))
		assert.Contains(t, log.text.String(), "stack=")
	})
}

// The end of a hold is reported, too, if the report of its grant has called runtime.Goexit, as an
// assertion in a test does.
func TestObserverThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{Observer: observe.Join(o.observer(), &observe.Observer{
			Acquired: func(context.Context, observe.Acquired) { runtime.Goexit() },
		})})
		go func() {
			_, _ = l.Mutex("a").Lock(t.Context())
			t.Error("Lock has returned")
		}()
		time.Sleep(time.Second)
		acquired, ended := o.take()
		require.Len(t, acquired, 1)
		require.Len(t, ended, 1)
		require.Equal(t, observe.Released, ended[0].Outcome)
		unlock(t, lockNow(t, server.Locker(t, lock.Config{}).Mutex("a")))
	})
}

// An acquisition that first asks the store and then waits has been in the queue for less
// time than the whole call took.
func TestObserverOfTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o observed
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Observer: o.observer()})
		theirs := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		const slow = 100 * time.Millisecond
		store.set(func() {
			store.acquire = func(_ context.Context, do func() error) error {
				time.Sleep(slow)
				return do()
			}
		})
		time.AfterFunc(time.Second, func() { unlock(t, theirs) })
		unlock(t, mustLock(t, l.Mutex("a")))
		acquired, _ := o.take()
		require.Len(t, acquired, 1)
		require.Positive(t, acquired[0].Queued)
		require.Equal(t, slow, acquired[0].Waited-acquired[0].Queued)
	})
}

// A locker's wheel is the one that it was given, or its own.
func TestWheelOfALocker(t *testing.T) {
	w, err := wheel.New(wheel.Config{})
	require.NoError(t, err)
	defer w.Stop()
	one := locktest.New(t, lock.Config{Wheel: w})
	assert.Same(t, w, one.Wheel())
	require.NoError(t, one.Close())
	own := locktest.New(t, lock.Config{})
	assert.NotSame(t, w, own.Wheel())
	lockNow(t, own.Mutex("a"))
	assert.Positive(t, own.Wheel().Stats().Pending)
}

// Statistics in a log are groups of plain numbers.
func TestStatsInALog(t *testing.T) {
	var log lines
	l := locktest.New(t, lock.Config{})
	unlock(t, lockNow(t, l.Mutex("a")))
	lockNow(t, l.Mutex("b"))
	slog.New(slog.NewTextHandler(&log, nil)).Info("now", "locks", l.Stats())
	for _, number := range []string{" locks.granted=2 ", " locks.leases.held=1 ", " locks.leases.watched=2 ", " locks.leases.released=1 ", " locks.unreleased=0\n"} {
		assert.Equal(t, 1, log.count(number), "%s in %s", number, log.text.String())
	}
}

// A locker has the functions that its observer had when the locker was made.
func TestObserverIsNotReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		observer := &observe.Observer{}
		l := locktest.New(t, lock.Config{Observer: observer})
		observer.Acquired = func(context.Context, observe.Acquired) { t.Error("Acquired was called") }
		observer.Ended = func(context.Context, observe.Ended) { t.Error("Ended was called") }
		require.NoError(t, mustLock(t, l.Mutex("a")).Unlock(t.Context()))
	})
}

// An observer that blocks keeps no holder from the loss of its lock, and Close no longer than
// its context.
func TestBlockedObserverStopsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		server := locktest.StartMemory(t)
		l := server.Locker(t, lock.Config{Observer: &observe.Observer{Ended: func(context.Context, observe.Ended) { <-block }}})
		defer close(block)
		lost := make(chan error, 2)
		var held []*lock.Lease
		for _, name := range []string{"a", "b"} {
			lease, err := l.Mutex(name).With(lock.Options{OnLost: func(err error) { lost <- err }}).Lock(t.Context())
			require.NoError(t, err)
			held = append(held, lease)
		}
		server.Freeze()
		defer server.Thaw()
		until := held[0].Until()
		time.Sleep(time.Minute)
		for _, lease := range held {
			require.ErrorIs(t, context.Cause(lease.Context()), lock.ErrLost)
		}
		require.False(t, time.Now().Before(until))
		require.Len(t, lost, 2, "OnLost is called")

		begin := time.Now()
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		select {
		case err := <-closed:
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(begin))
		case <-time.After(time.Minute):
			require.Fail(t, "Close does not end")
		}
	})
}
