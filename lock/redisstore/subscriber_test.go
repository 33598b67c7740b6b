package redisstore_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// A subscription that was cancelled and requested again is confirmed twice. Only the
// second confirmation is for the second request. At the first one the server is about to
// end the subscription that it confirms.
func TestConfirmationOfAnEarlierSubscription(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	store := open(t, wire.Client(t))
	other, err := store.Subscribe(t.Context(), &driver.Hold{Name: "other"}, func(driver.Notice) {})
	require.NoError(t, err)
	defer other.Close()

	wire.Set(redistest.Fault{Replies: redistest.Hold})
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = store.Subscribe(brief, &driver.Hold{Name: "a"}, func(driver.Notice) {})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, driver.ErrUnavailable)

	wire.Set(redistest.Fault{Replies: redistest.Hold, Requests: redistest.Hold})
	confirmed := make(chan error, 1)
	var woken atomic.Int32
	go func() {
		sub, err := store.Subscribe(t.Context(), &driver.Hold{Name: "a"}, func(driver.Notice) { woken.Add(1) })
		confirmed <- err
		if err == nil {
			t.Cleanup(sub.Close)
		}
	}()
	time.Sleep(50 * time.Millisecond)
	wire.Set(redistest.Fault{Requests: redistest.Hold})
	select {
	case err := <-confirmed:
		t.Errorf("answered (%v) although the server has not got the request", err)
	case <-time.After(200 * time.Millisecond):
	}
	wire.Heal()
	require.NoError(t, <-confirmed)
	require.NoError(t, server.Client(t).Publish(t.Context(), "redisson_lock__channel:{a}", "0").Err())
	require.Eventually(t, func() bool { return woken.Load() == 1 }, 5*time.Second, time.Millisecond)
}

// A subscription connection that stays open but does not respond is closed and replaced.
func TestMuteSubscriptionConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	wire := redistest.StartProxy(t, server)
	store := open(t, wire.Client(t))
	woken := make(chan struct{}, 10)
	sub, err := store.Subscribe(t.Context(), &driver.Hold{Name: "a"}, func(driver.Notice) { woken <- struct{}{} })
	require.NoError(t, err)
	defer sub.Close()
	wire.Set(redistest.Fault{Replies: redistest.Drop})
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, server.Client(t).Publish(t.Context(), "redisson_lock__channel:{a}", "0").Err())
	time.Sleep(100 * time.Millisecond)
	wire.Heal() // the lost replies stay lost, and its connection unresponsive
	select {
	case <-woken:
	case <-time.After(15 * time.Second):
		t.Fatal("nobody has made up for the lost message")
	}
	require.NoError(t, server.Client(t).Publish(t.Context(), "redisson_lock__channel:{a}", "0").Err())
	<-woken
}

func TestSubscribeAfterClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	store := open(t, server.Client(t))
	sub, err := store.Subscribe(t.Context(), &driver.Hold{Name: "a"}, func(driver.Notice) {})
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
	server := redistest.Start(t, redistest.Config{})
	store := open(t, server.Client(t))
	woken := make(chan struct{}, 100)
	sub, err := store.Subscribe(t.Context(), &driver.Hold{Kind: driver.KindRead, Name: "a"}, func(driver.Notice) { woken <- struct{}{} })
	require.NoError(t, err)
	defer sub.Close()
	server.Kill()
	stacks := make([]byte, 64<<20)
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		movers := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "(*subscriber).move(")
		require.Less(t, movers, 5)
	}
	server.Restart(t)
	<-woken
}

// A waiter may give up while its channel moves to a new connection that is still being
// made. It leaves no subscription behind. A subscription left on Redisson's channel looks
// like a client that does not enter the wait queue, to which every other hand-over goes.
func TestGivingUpDuringAMoveLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	server, wire, admin := startProxied(t)
	store := open(t, wire.Client(t))
	subscribe := func(name string) (driver.Subscription, error) {
		return store.Subscribe(t.Context(), &driver.Hold{Name: name}, func(driver.Notice) {})
	}
	stays, err := subscribe("stays")
	require.NoError(t, err)
	defer stays.Close()
	for range 10 {
		gone, err := subscribe("a")
		require.NoError(t, err)
		awaitChannels(t, admin, 6)
		wire.Set(redistest.Fault{Requests: redistest.Hold}) // a new connection gets stuck
		wire.Reset()
		fresh := make(chan driver.Subscription, 1)
		go func() {
			for t.Context().Err() == nil {
				if s, err := subscribe("fresh"); err == nil {
					fresh <- s
					return
				}
			}
		}()
		time.Sleep(30 * time.Millisecond) // the channels wait for the connection
		gone.Close()
		wire.Heal()
		(<-fresh).Close()
		awaitChannels(t, admin, 3)
	}

	// Hand-overs take two commands each, as before.
	mine := locker(t, wire.Client(t), lock.Config{Poll: time.Hour})
	theirs := locker(t, server.Client(t), lock.Config{Poll: time.Hour})
	const rounds = 50
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
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	var woken atomic.Int32
	sub, err := store.Subscribe(t.Context(), &driver.Hold{Kind: driver.KindRead, Name: "a"}, func(driver.Notice) { woken.Add(1) })
	require.NoError(t, err)
	defer sub.Close()
	connection := func() string {
		for line := range strings.SplitSeq(admin.ClientList(t.Context()).Val(), "\n") {
			if strings.Contains(line, " sub=1 ") {
				id, _, _ := strings.Cut(line, " ")
				return id
			}
		}
		return ""
	}
	before := connection()
	require.NotEmpty(t, before)
	pings := func() (n int) {
		stats := admin.InfoMap(t.Context(), "commandstats")
		_, _ = fmt.Sscanf(stats.Item("Commandstats", "cmdstat_ping"), "calls=%d", &n)
		return n
	}
	first := pings()
	require.Eventually(t, func() bool { return pings() >= first+3 }, time.Minute, 100*time.Millisecond)
	time.Sleep(100 * time.Millisecond)
	assert.Equal(t, before, connection())
	assert.Zero(t, woken.Load(), "a connection that is replaced wakes its waiters")
}

// A connection without subscriptions is closed at its next check. A subscription that is
// made at that moment gets another one.
func TestIdleSubscriptionConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server, _ := startServer(t)
	store := open(t, server.Client(t))
	ended := make(chan struct{})
	var checks sync.WaitGroup
	checks.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				store.CheckConns()
			}
		}
	})
	for range 500 {
		sub, err := store.Subscribe(t.Context(), &driver.Hold{Kind: driver.KindRead, Name: "a"}, func(driver.Notice) {})
		if !assert.NoError(t, err) {
			break
		}
		sub.Close()
	}
	close(ended)
	checks.Wait()
}

func pubsubID(t *testing.T, admin *redis.Client) string {
	t.Helper()
	for line := range strings.Lines(admin.Do(t.Context(), "client", "list", "type", "pubsub").Val().(string)) {
		id, _, _ := strings.Cut(line, " ")
		return id
	}
	return ""
}

// A caller whose context has ended breaks neither the connection of all subscriptions nor
// a subscription that other callers are making.
func TestEndedContextBreaksNoSubscription(t *testing.T) {
	t.Parallel()
	_, wire, admin := startProxied(t)
	store := open(t, wire.Client(t))
	sub, err := store.Subscribe(t.Context(), &driver.Hold{Name: "mine"}, func(driver.Notice) {})
	require.NoError(t, err)
	defer sub.Close()
	id := pubsubID(t, admin)

	// Another caller's subscription is in flight.
	wire.Set(redistest.Fault{Delay: 100 * time.Millisecond})
	neighbour := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		sub, err := store.Subscribe(ctx, &driver.Hold{Name: "neighbour's"}, func(driver.Notice) {})
		if err == nil {
			defer sub.Close()
		}
		neighbour <- err
	}()
	time.Sleep(50 * time.Millisecond)

	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Millisecond))
	defer cancel()
	_, err = store.Subscribe(over, &driver.Hold{Name: "late one's"}, func(driver.Notice) {})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	assert.NoError(t, <-neighbour, "the neighbour had ten seconds")
	wire.Heal()
	time.Sleep(300 * time.Millisecond)
	assert.Equal(t, id, pubsubID(t, admin), "the connection of all subscriptions")
}
