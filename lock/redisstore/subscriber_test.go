package redisstore_test

import (
	"context"
	"runtime"
	"strings"
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
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// subscribe makes a subscription that has a minute to connect, and ends with t.
func subscribe(t *testing.T, s *redisstore.Store, h *driver.Hold, notify func(driver.Notice)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sub, err := s.Subscribe(ctx, h, notify)
	require.NoError(t, err)
	t.Cleanup(sub.Close)
}

// A subscription that was cancelled and requested again is confirmed twice. Only the
// second confirmation is for the second request. At the first one the server is about to
// end the subscription that it confirms.
func TestConfirmationOfAnEarlierSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		store := open(t, wire.client(t))
		subscribe(t, store, &driver.Hold{Name: "other"}, func(driver.Notice) {})

		wire.set(redistest.Fault{Replies: redistest.Hold})
		brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := store.Subscribe(brief, &driver.Hold{Name: "a"}, func(driver.Notice) {})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, driver.ErrUnavailable)

		wire.set(redistest.Fault{Replies: redistest.Hold, Requests: redistest.Hold})
		confirmed := make(chan error, 1)
		var woken atomic.Int32
		go func() {
			sub, err := store.Subscribe(t.Context(), &driver.Hold{Name: "a"}, func(driver.Notice) { woken.Add(1) })
			confirmed <- err
			if err == nil {
				t.Cleanup(sub.Close)
			}
		}()
		synctest.Wait()
		wire.set(redistest.Fault{Requests: redistest.Hold})
		synctest.Wait()
		require.Empty(t, confirmed, "answered although the server has not got the request")
		wire.heal()
		require.NoError(t, <-confirmed)
		require.NoError(t, server.Client(t).Publish(t.Context(), "redisson_lock__channel:{a}", "0").Err())
		synctest.Wait()
		require.EqualValues(t, 1, woken.Load())
	})
}

// A subscription connection that stays open but does not respond is closed and replaced.
func TestUnresponsiveSubscriptionConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		store := open(t, wire.client(t))
		var woken atomic.Int32
		subscribe(t, store, &driver.Hold{Name: "a"}, func(driver.Notice) { woken.Add(1) })
		wire.set(redistest.Fault{Replies: redistest.Drop})
		publish := func() {
			require.NoError(t, server.Client(t).Publish(t.Context(), "redisson_lock__channel:{a}", "0").Err())
			synctest.Wait()
		}
		publish()
		wire.heal() // the lost replies stay lost, and its connection unresponsive
		require.Zero(t, woken.Load())
		time.Sleep(10 * time.Second)
		replaced := woken.Load()
		require.Positive(t, replaced, "it has not made up for the lost message")
		publish()
		require.Equal(t, replaced+1, woken.Load())
	})
}

func TestSubscribeAfterClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store := open(t, server.Client(t))
	ctx, cancel := context.WithTimeout(t.Context(), answersWithin) // without a deadline, a subscription has 2 s
	defer cancel()
	sub, err := store.Subscribe(ctx, &driver.Hold{Name: "a"}, func(driver.Notice) {})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	_, err = store.Subscribe(t.Context(), &driver.Hold{Name: "a"}, func(driver.Notice) {})
	require.Error(t, err)
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
	sub.Close()
	require.NoError(t, store.Close())
}

// While a server is down, one goroutine moves each channel, not one more for each
// attempt.
func TestMoversDoNotMultiply(t *testing.T) { //nolint:paralleltest // it counts goroutines of the whole process
	synctest.Test(t, func(t *testing.T) {
		server := locktest.Start(t)
		store := open(t, server.Client(t))
		woken := make(chan struct{}, 100)
		subscribe(t, store, &driver.Hold{Kind: driver.KindRead, Name: "a"}, func(driver.Notice) { woken <- struct{}{} })
		server.Disconnect()
		stacks := make([]byte, 16<<20)
		for range 20 {
			time.Sleep(10 * time.Second)
			movers := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*Subscriber).move(")
			require.Equal(t, 1, movers)
		}
		server.Reconnect()
		<-woken
	})
}

// A waiter may give up while its channels wait for a connection that is still being made, new
// ones and those of a broken connection. It leaves no subscription behind. A subscription left
// on Redisson's channel looks like a client that does not enter the wait queue, to which every
// other hand-over goes.
func TestGivingUpDuringAMoveLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	server, wire, admin := startProxied(t)
	store := open(t, wire.Client(t))
	patient, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // without a deadline, a subscription has 2 s
	defer cancel()
	listen := func(ctx context.Context, name string) (driver.Subscription, error) {
		return store.Subscribe(ctx, &driver.Hold{Name: name}, func(driver.Notice) {})
	}
	stays, err := listen(patient, "stays")
	require.NoError(t, err)
	defer stays.Close()
	for range 10 {
		gone, err := listen(patient, "a")
		require.NoError(t, err)
		awaitChannels(t, admin, 6)
		wire.Set(redistest.Fault{Requests: redistest.Hold}) // a new connection gets stuck
		wire.Reset()
		require.Eventually(t, func() bool {
			return strings.Contains(admin.ClientList(t.Context()).Val(), " cmd=NULL ")
		}, time.Minute, time.Millisecond, "the channels, which move, wait for the connection")
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, err = store.Subscribe(short, &driver.Hold{Name: "short"}, func(driver.Notice) {}) // these channels wait, too
		cancel()
		require.Error(t, err)
		gone.Close()
		wire.Heal()
		fresh, err := listen(t.Context(), "fresh")
		for err != nil && t.Context().Err() == nil {
			fresh, err = listen(t.Context(), "fresh")
		}
		require.NoError(t, err)
		fresh.Close()
		awaitChannels(t, admin, 3)
	}

	// Hand-overs take two commands each, as before.
	mine := locker(t, wire.Client(t), lock.Config{Poll: time.Hour})
	theirs := locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	const rounds = 20
	contend := func() {
		var work sync.WaitGroup
		for _, l := range []*lock.Locker{mine, theirs} {
			work.Go(func() {
				for range rounds {
					assert.NoError(t, mustLock(t, l, "a").Unlock(t.Context()))
				}
			})
		}
		work.Wait()
	}
	contend()
	before := scripts(t, admin)
	contend()
	assert.LessOrEqual(t, float64(scripts(t, admin)-before)/(2*rounds), 2.5)
}

// A subscription connection without messages, whose pings are answered, is kept.
func TestIdleSubscriptionConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := open(t, locktest.Start(t).Client(t))
		var woken atomic.Int32
		subscribe(t, store, &driver.Hold{Kind: driver.KindRead, Name: "a"}, func(driver.Notice) { woken.Add(1) })
		time.Sleep(10 * time.Minute)
		assert.Zero(t, woken.Load(), "a connection that is replaced wakes its waiters")
	})
}

// A caller whose context ends breaks neither the connection of all subscriptions nor a
// subscription that another caller is making.
func TestEndedContextBreaksNoSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, wire := startNetwork(t)
		store := open(t, wire.client(t))
		var woken atomic.Int32
		wire.set(redistest.Fault{Requests: redistest.Hold}) // the connection is in the making
		neighbour := make(chan driver.Subscription, 1)
		time.AfterFunc(10*time.Millisecond, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			sub, err := store.Subscribe(ctx, &driver.Hold{Name: "a"}, func(driver.Notice) { woken.Add(1) })
			assert.NoError(t, err, "the neighbour had ten seconds")
			neighbour <- sub
		})
		for _, name := range []string{"a", "b"} {
			brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := store.Subscribe(brief, &driver.Hold{Name: name}, func(driver.Notice) {})
			require.ErrorIs(t, err, driver.ErrUnavailable)
			_, err = store.Subscribe(brief, &driver.Hold{Name: name}, func(driver.Notice) {})
			require.ErrorIs(t, err, driver.ErrUnavailable)
			cancel()
		}
		wire.heal()
		sub := <-neighbour
		require.NotNil(t, sub)
		defer sub.Close()
		time.Sleep(10 * time.Second)
		assert.Zero(t, woken.Load(), "a connection that is replaced wakes its waiters")
	})
}

// A subscription connection takes as long as its caller allows, also where three of its
// checks come before the first answer.
func TestSubscribeOverASlowNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, wire := startNetwork(t)
		wire.set(redistest.Fault{Delay: 2900 * time.Millisecond})
		store := open(t, wire.client(t))
		var woken atomic.Int32
		subscribe(t, store, &driver.Hold{Name: "a"}, func(driver.Notice) { woken.Add(1) })
		require.NoError(t, server.Client(t).Publish(t.Context(), "redisson_lock__channel:{a}", "0").Err())
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, woken.Load())
	})
}
