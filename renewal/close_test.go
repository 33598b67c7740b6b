package renewal

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/wheel"
)

func within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func TestCloseEndsTheLeases(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		leases := b.grantMany(300, "a/", atOnce)
		leases = append(leases, b.grantMany(300, "b/", atOnce)...)
		leases = append(leases, b.grant(Spec{Key: "a/fixed", Fixed: true}))
		var hooks atomic.Int32
		slow := b.grant(Spec{Key: "a/slow", OnLost: func(error) {
			time.Sleep(time.Second)
			hooks.Add(1)
		}})
		time.Sleep(time.Second)
		require.NoError(b, b.dog.Close(within(time.Minute)))
		require.EqualValues(b, 1, hooks.Load(), "Close waits for the hooks")
		for _, l := range append(leases, slow) {
			b.isLost(l, Closed)
			b.forbid(l.Owner())
		}
		require.Len(b, b.leases, 602, "they stay with the store")
		require.EqualValues(b, 602, b.dog.Stats().Lost[Closed])
		_, err := b.dog.Watch(Spec{Key: "late", TTL: time.Minute, Granted: time.Now()})
		require.ErrorIs(b, err, ErrClosed)
		time.Sleep(time.Minute)
	})
}

// Once leases are being ended, none is renewed any more, however many there are and however long that takes.
func TestAbandonRenewsNothing(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		slow := &blockingContext{Context: ctx, block: make(chan struct{})}
		for i := range 3 * stride {
			b.grant(Spec{Key: fmt.Sprint(i), Context: slow})
		}
		slow.blocks.Store(true) // the first report
		abandoned := make(chan []*Lease)
		go func() { abandoned <- b.dog.Abandon() }()
		synctest.Wait()
		time.Sleep(20 * time.Second)
		close(slow.block)
		require.Len(b, <-abandoned, 3*stride)
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(b, b.requests)
	})
}

// The requests that Abandon cancels are no failures of the store: a lease whose time is over before
// Abandon comes to it has expired.
func TestAbandonIsNoFailureOfTheStore(t *testing.T) {
	for name, fault := range map[string]node{"Mute": {mute: true}, "Deaf": {deaf: true, before: time.Minute}} {
		t.Run(name, func(t *testing.T) { abandonOf(t, fault) })
	}
}

// abandonOf abandons leases whose requests end with their context, or later.
func abandonOf(t *testing.T, fault node) {
	inBubble(t, Config{}, func(b *bench) {
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		slow := &blockingContext{Context: ctx, block: make(chan struct{})}
		open := b.shut()
		for i := range 3 * stride {
			b.grant(Spec{Key: fmt.Sprint(i), Context: slow})
		}
		time.Sleep(11 * time.Second) // all are due
		b.node("", func(n *node) { *n = fault })
		open()
		synctest.Wait()
		require.Positive(b, b.dog.Stats().InFlight)
		slow.blocks.Store(true) // the first report
		abandoned := make(chan []*Lease)
		go func() { abandoned <- b.dog.Abandon() }()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		close(slow.block)
		ended := len(<-abandoned) // a stride at most was ended by then
		lost := b.dog.Stats().Lost
		require.EqualValues(b, ended, lost[Closed])
		require.EqualValues(b, 3*stride-ended, lost[Expired])
		require.GreaterOrEqual(b, lost[Expired], int64(2*stride))
	})
}

// ending is a context that ends as soon as it is waited for, after something else.
type ending struct {
	context.Context
	first func()
}

func (e ending) Done() <-chan struct{} {
	e.first()
	done := make(chan struct{})
	close(done)
	return done
}

func (ending) Err() error { return context.Canceled }

// What comes at the instant at which the context ends has come in time.
func TestWaitEndsWithItsContext(t *testing.T) {
	for range 30 { // a select would choose at random
		inBubble(t, Config{}, func(b *bench) {
			b.node("", func(n *node) { n.mute = true })
			l, other := b.grant(Spec{Key: "k"}), b.grant(Spec{Key: "other"})
			b.awaitRequest()
			for _, l := range []*Lease{l, other} {
				require.NoError(b, l.Stop(ending{b.Context(), func() {
					time.Sleep(DefaultRequestTimeout)
					synctest.Wait()
				}}))
			}
			held := b.grant(Spec{Key: "held"})
			require.NoError(b, b.dog.Drain(ending{b.Context(), func() { b.stop(held) }}))
		})
	}
}

// Close waits until the losses before it have been reported, by any goroutine.
func TestCloseWaitsForReports(t *testing.T) {
	reported := make(map[Cause]bool)
	o := &Observer{Lost: func(_ *Lease, lost *LostError) {
		time.Sleep(time.Minute)
		reported[lost.Cause] = true
	}}
	synctest.Test(t, func(t *testing.T) {
		shared, err := wheel.New(wheel.Config{Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		defer shared.Stop()
		for _, cause := range []Cause{ContextEnded, Expired} {
			dog, err := New(newStore(), Config{Wheel: shared, Observer: o})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			own := &blockingContext{Context: ctx, block: make(chan struct{})}
			_, err = dog.Watch(Spec{Key: "k", TTL: 10 * time.Second, Granted: time.Now(), Fixed: true, Context: own})
			require.NoError(t, err)
			if cause == ContextEnded {
				cancel()
			} else {
				own.blocks.Store(true) // so that the report begins late
				time.AfterFunc(time.Minute, func() { close(own.block) })
				time.Sleep(10 * time.Second)
			}
			synctest.Wait()
			assert.NoError(t, dog.Close(t.Context()))
			assert.True(t, reported[cause], "%v", cause)
			time.Sleep(time.Hour)
		}
	})
}

// lastPanic is a store whose Group panics once it may.
type lastPanic struct {
	*store
	may chan struct{}
}

func (l lastPanic) Group(string, any) string {
	<-l.may
	panic("the last")
}

// Close waits for a message that the dispatcher begins to log while Close waits for the dispatcher.
func TestCloseWaitsForTheLastMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, logged := lastPanic{newStore(), make(chan struct{})}, make(chan struct{})
		dog, err := New(s, Config{Logger: slog.New(failingHandler{slog.DiscardHandler, func() { <-logged }})})
		require.NoError(t, err)
		b := &bench{t, s.store, dog}
		b.grant(Spec{Key: "k"})
		time.Sleep(20 * time.Second) // the dispatcher is in Group
		closed := make(chan error, 1)
		go func() { closed <- dog.Close(context.Background()) }()
		synctest.Wait()
		close(s.may)
		synctest.Wait()
		select {
		case err := <-closed:
			t.Errorf("Close returned %v while a message was logged", err)
			close(logged)
		default:
			close(logged)
			require.NoError(t, <-closed)
		}
	})
}

// A watchdog that has stopped is closed, whatever the context of a further Close.
func TestCloseAgainAfterItsContext(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.grant(Spec{Key: "k"})
		require.NoError(b, b.dog.Close(context.Background()))
		for range 100 {
			require.NoError(b, b.dog.Close(within(0)))
		}
	})
}

// A watchdog leaves nothing on a wheel that it shares.
func TestCloseLeavesNothingOnTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := wheel.New(wheel.Config{})
		require.NoError(t, err)
		s := newStore()
		dog, err := New(s, Config{Wheel: w})
		require.NoError(t, err)
		b := &bench{t, s, dog}
		b.grantMany(3, "k", atOnce)
		b.close()
		require.Zero(t, w.Stats().Pending)
		require.Empty(t, w.Stop())
	})
}

// stubborn is a store whose alarm is stopped by a function of the test's.
type stubborn struct {
	*store
	stop func()
}

func (s stubborn) OnLoss(func()) (stop func()) { return s.stop }

// However an alarm is stopped, the leases are lost at once, and Close ends with its context.
func TestCloseIsBoundedWhateverAnAlarmDoes(t *testing.T) {
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic("in stop") }, "exits": runtime.Goexit, "hangs": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				s := newStore()
				dog, err := New(stubborn{s, func() {
					if end == nil {
						<-hang
						return
					}
					end()
				}}, Config{})
				require.NoError(t, err)
				b := &bench{t, s, dog}
				l := b.grant(Spec{Key: "k"})
				start := time.Now()
				err = dog.Close(within(time.Second))
				b.isLost(l, Closed)
				if end == nil {
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.Equal(t, time.Second, time.Since(start))
					close(hang)
				} else {
					require.NoError(t, err)
				}
				b.close()
			})
		})
	}
}

// Abandon returns each lease that it has ended, and waits for nothing.
func TestAbandonReturnsTheLeases(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		t.Run(fmt.Sprint("deaf ", deaf), func(t *testing.T) {
			inBubble(t, Config{}, func(b *bench) {
				b.node("a", func(n *node) { n.before, n.deaf = time.Second, deaf })
				leases := b.grantMany(300, "a/", atOnce)
				leases = append(leases, b.grant(Spec{Key: "b/fixed", Fixed: true}))
				b.stop(leases[7])
				b.awaitRequest()
				start := time.Now()
				abandoned := b.dog.Abandon()
				require.Equal(b, start, time.Now())
				require.ElementsMatch(b, append(leases[:7:7], leases[8:]...), abandoned)
				require.Empty(b, b.dog.Abandon())
				_, err := b.dog.Watch(Spec{Key: "late", TTL: time.Minute, Granted: time.Now()})
				require.ErrorIs(b, err, ErrClosed)
				for _, l := range abandoned {
					b.isLost(l, Closed)
					b.stop(l) // waits for renewals in flight: none is sent afterwards
					b.remove(l.Key())
				}
				if !deaf {
					require.Less(b, time.Since(start), tick, "they are cancelled")
				}
				time.Sleep(time.Minute)
				require.Len(b, b.leases, 1, "none was renewed after its release")
			})
		})
	}
}

// Several that end a watchdog at the same time share its leases: each lease is returned
// once, and none of them waits for ever.
func TestEndsAtTheSameTime(t *testing.T) {
	for range 20 {
		inBubble(t, Config{}, func(b *bench) {
			var leases []*Lease
			for i := range 100 { // due at different times
				leases = append(leases, b.grant(Spec{Key: fmt.Sprint("a/", i), TTL: time.Duration(3+i) * time.Second}))
			}
			var (
				work sync.WaitGroup
				each [3][]*Lease
			)
			for i := range each {
				work.Go(func() { each[i] = b.dog.Abandon() })
			}
			work.Go(func() { assert.NoError(b, b.dog.Close(within(time.Minute))) })
			work.Wait()
			returned := map[*Lease]bool{}
			for _, l := range slices.Concat(each[:]...) {
				require.False(b, returned[l], "%s was returned twice", l.Key())
				returned[l] = true
			}
			for _, l := range leases {
				b.isLost(l, Closed)
			}
		})
	}
}

func TestCloseIsBounded(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		hang := make(chan bool)
		b.grant(Spec{Key: "hangs", OnLost: func(error) { <-hang }})
		b.node("", func(n *node) { n.before, n.deaf = time.Minute, true })
		b.grant(Spec{Key: "k"})
		b.awaitRequest()
		start := time.Now()
		var second sync.WaitGroup
		second.Go(func() {
			time.Sleep(time.Second)
			require.ErrorIs(b, b.dog.Close(within(time.Second)), context.DeadlineExceeded)
			require.Equal(b, 2*time.Second, time.Since(start))
		})
		err := b.dog.Close(within(5 * time.Second))
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.Equal(b, 5*time.Second, time.Since(start))
		second.Wait()
		require.ErrorIs(b, b.dog.Close(within(time.Second)), context.DeadlineExceeded, "its goroutines still run")
		close(hang)
		time.Sleep(time.Minute)
	})
}

func TestCloseRacingEverything(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		b.node("", func(n *node) { n.before, n.after = 3*time.Millisecond, 3*time.Millisecond })
		var users sync.WaitGroup
		for i := range 200 {
			users.Go(func() {
				for j := 0; ; j++ {
					time.Sleep(time.Duration(i%7) * time.Millisecond)
					key, owner := fmt.Sprint("k", i, "/", j), fmt.Sprint("o", i, "/", j)
					granted := time.Now()
					require.True(b, b.acquire(key, owner, time.Second))
					l, err := b.dog.Watch(Spec{Key: key, Owner: owner, TTL: time.Second, Granted: granted})
					if err != nil {
						require.ErrorIs(b, err, ErrClosed)
						b.remove(key)
						return
					}
					select {
					case <-time.After(time.Duration(1+i%11) * 100 * time.Millisecond):
					case <-l.Lost():
						b.isLost(l, Closed)
					}
					require.NoError(b, l.Stop(b.Context()))
					b.forbid(owner)
					b.remove(key)
				}
			})
		}
		time.Sleep(3 * time.Second)
		require.NoError(b, b.dog.Close(within(time.Minute)))
		users.Wait()
		require.Empty(b, b.leases)
		s := b.dog.Stats()
		require.Equal(b, s.Watched, s.Released+s.Lost.Total())
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, Config{}, func(b *bench) {
		l := b.grant(Spec{Key: "k"})
		err := b.dog.Drain(within(time.Minute))
		require.ErrorIs(b, err, context.DeadlineExceeded)
		require.ErrorContains(b, err, "1 leases are still held")
		_, err = b.dog.Watch(Spec{Key: "late", TTL: time.Minute, Granted: time.Now()})
		require.ErrorIs(b, err, ErrClosed)
		require.True(b, l.Valid(), "it is renewed meanwhile")
		var drained sync.WaitGroup
		for range 2 {
			drained.Go(func() { require.NoError(b, b.dog.Drain(within(2*time.Minute))) })
		}
		time.Sleep(time.Minute)
		b.stop(l)
		drained.Wait()
		require.NoError(b, b.dog.Drain(within(0)), "nothing is held")
	})
}
