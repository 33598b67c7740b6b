package lock_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/observe"
)

// blocked is the handler of a logger that blocks until the test's end, as one whose pipe is full.
type blocked struct {
	until chan struct{}
	calls *atomic.Int64
}

func (b blocked) Enabled(context.Context, slog.Level) bool { return true }

func (b blocked) Handle(context.Context, slog.Record) error {
	b.calls.Add(1)
	<-b.until
	return nil
}

func (b blocked) WithAttrs([]slog.Attr) slog.Handler { return b }
func (b blocked) WithGroup(string) slog.Handler      { return b }

// mutedClient is a store that refuses the record of a client.
type mutedClient struct{ driver.Store }

func (mutedClient) Announce(context.Context, driver.Client, time.Duration) error {
	return context.DeadlineExceeded
}

// A logger that blocks delays no call beyond its bound.
func TestLoggerThatBlocks(t *testing.T) {
	var calls atomic.Int64
	play := func(t *testing.T, c lock.Config, use func(t *testing.T, l *lock.Locker, store *faulty, other *lock.Locker)) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			calls.Store(0)
			b := blocked{make(chan struct{}), &calls}
			defer close(b.until)
			server := locktest.StartMemory(t)
			store := &faulty{Store: mutedClient{server.Store(t)}}
			c.Logger = slog.New(b)
			l, err := lock.New(store, c)
			require.NoError(t, err)
			use(t, l, store, server.Locker(t, lock.Config{}))
			begin := time.Now()
			_ = l.Close()
			require.LessOrEqual(t, time.Since(begin), 2*driver.DefaultRequestTimeout)
		})
	}
	t.Run("Close", func(t *testing.T) {
		play(t, lock.Config{}, func(t *testing.T, l *lock.Locker, _ *faulty, _ *lock.Locker) {
			unlock(t, lockNow(t, l.Mutex("a")))
			synctest.Wait()
		})
	})
	t.Run("a subscription fails", func(t *testing.T) {
		play(t, lock.Config{}, func(t *testing.T, l *lock.Locker, store *faulty, other *lock.Locker) {
			store.set(func() { store.subscribe = broken })
			held := lockNow(t, other.Mutex("a"))
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := l.Mutex("a").Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Minute, time.Since(begin))
			unlock(t, held)
		})
	})
	t.Run("an outage", func(t *testing.T) {
		play(t, lock.Config{}, func(t *testing.T, l *lock.Locker, store *faulty, _ *lock.Locker) {
			store.set(func() { store.acquire = down })
			got := await(t, l.Mutex("a"))
			time.Sleep(time.Minute)
			store.set(func() { store.acquire = nil })
			time.Sleep(time.Minute)
			select {
			case lease := <-got:
				unlock(t, lease)
			default:
				t.Fatal("the lock is not granted after the outage")
			}
		})
	})
	t.Run("panics", func(t *testing.T) {
		observer := &observe.Observer{Acquired: func(context.Context, observe.Acquired) { panic("mine") }}
		play(t, lock.Config{Observer: observer}, func(t *testing.T, l *lock.Locker, _ *faulty, _ *lock.Locker) {
			var p *lock.PanicError
			require.ErrorAs(t, isOver(t, deferOn(t, l, "a", func(context.Context) error { panic("mine") })), &p)
			for range 1100 {
				unlock(t, lockNow(t, l.Mutex("a")))
			}
			synctest.Wait()
			require.EqualValues(t, 1000, calls.Load(), "the goroutines that wait for the logger")
		})
	})
}

// stuck is an error whose text waits, as for a lock that the function which panicked still holds.
type stuck struct{ until <-chan struct{} }

func (s stuck) Error() string { <-s.until; return "no longer stuck" }

// The value of a panic, whose text is a method of the user's, is printed by the logger alone: the panic is
// delivered, and what waits for the same lock goes on.
func TestPanicThatCannotBePrinted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		letGo := sync.OnceFunc(func() { close(until) })
		defer letGo()
		var log lines
		server := locktest.StartMemory(t)
		l, store := faultyLocker(t, server, lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), MaxRunning: 1})
		var p *lock.PanicError
		require.ErrorAs(t, isOver(t, deferOn(t, l, "a", func(context.Context) error { panic(stuck{until}) })), &p, "the function's")

		held := lockNow(t, server.Locker(t, lock.Config{}).Mutex("a"))
		var waiting []*lock.Deferred
		for range 2 {
			waiting = append(waiting, deferOn(t, l, "a", func(context.Context) error { return nil }))
		}
		synctest.Wait()
		store.set(func() { store.acquire = times(1, func(context.Context, func() error) error { panic(stuck{until}) }) })
		time.Sleep(time.Minute)
		require.ErrorAs(t, isOver(t, waiting[0]), &p, "the store's")
		unlock(t, held)
		require.NoError(t, isOver(t, waiting[1]))
		letGo()
		synctest.Wait()
		assert.Equal(t, 2, log.count(`panic="no longer stuck"`))
	})
}
