package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine/machinetest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// The scripts mean what the machine means, on a server whose clock stands still at chosen instants.
// The life of fencing counters, and runs that several requests share, are not compared.
func TestScriptsMeanWhatTheMachineMeans(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	machinetest.Run(t, func(t *testing.T) *machinetest.Side { return newArena(t).side() })
}

// arena is a server whose clock is chosen, and clients of it.
type arena struct {
	t      *testing.T
	clock  steppedClock
	start  time.Time
	admin  *redis.Client
	stores []*contestant
	peer   *redis.PubSub
}

// contestant is one client's store.
type contestant struct {
	*redisstore.Store
	late   atomic.Bool // requests are late
	marked chan struct{}
}

func newArena(t *testing.T) *arena {
	t.Helper()
	start := time.Now().Truncate(time.Second)
	a := &arena{t: t, clock: newFrozenClock(t, start), start: start}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // without a deadline, a subscription has 2 s
	defer cancel()
	server := redistest.Start(t, redistest.Config{Env: a.clock.env()})
	a.admin = server.Client(t)
	// Redis 8 removes keys in the background in their last ms already.
	require.NoError(t, a.admin.Do(ctx, "debug", "set-active-expire", "0").Err())
	for i := range machinetest.Clients {
		c := &contestant{marked: make(chan struct{}, 1)}
		client := server.Client(t)
		client.AddHook(lateHook{&c.late})
		c.Store = openWith(t, client, redisstore.Config{FenceTTL: -1})
		_, err := c.Listen(ctx, markerOf(i), func() {
			select {
			case c.marked <- struct{}{}:
			default: // a further one, after a gap
			}
		})
		require.NoError(t, err)
		a.stores = append(a.stores, c)
	}
	return a
}

func markerOf(client int) string { return fmt.Sprint("marker:", client) }

// lateHook makes the requests of scripts with a deadline late.
type lateHook struct{ late *atomic.Bool }

func (lateHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l lateHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if l.late.Load() {
			beLate(cmd)
		}
		return next(ctx, cmd)
	}
}

func (l lateHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if l.late.Load() {
				beLate(cmd)
			}
		}
		return next(ctx, cmds)
	}
}

// beLate sets a script's deadline, its last argument but one, to an instant long ago.
func beLate(cmd redis.Cmder) {
	args := cmd.Args()
	if name := cmd.Name(); name != "evalsha" && name != "eval" || len(args) < 6 {
		return
	}
	if by, ok := args[len(args)-2].(*string); ok && len(*by) == 16 {
		args[len(args)-2] = "1"
	}
}

func (a *arena) side() *machinetest.Side {
	s := &machinetest.Side{
		Name: "Redis", Start: a.start, Others: true,
		SetClock: func(at time.Time) { a.clock.step(a.t, at.Sub(a.start)) },
		Late:     func(client int, late bool) { a.stores[client].late.Store(late) },
		Bounded:  func(string, driver.Kind) bool { return true },
		Flush:    a.flush,
		Settle:   a.settle,
		After: func(ctx context.Context, name string, k driver.Kind) {
			if k == driver.KindMutex { // no windows for clients that poll
				require.NoError(a.t, a.admin.Del(ctx, "leasewheel_lock_turns:"+tagOf(name)).Err())
			}
		},
		Peer: a.subscribePeer,
	}
	for _, store := range a.stores {
		s.Stores = append(s.Stores, store)
	}
	return s
}

// flush returns when a client has all messages: one behind all others on the same connection
// shows that there are no more.
func (a *arena) flush(ctx context.Context, client int) error {
	store := a.stores[client]
	select {
	case <-store.marked: // of a gap
	default:
	}
	if err := a.admin.Publish(ctx, markerOf(client), "").Err(); err != nil {
		return err
	}
	select {
	case <-store.marked:
		return nil
	case <-ctx.Done():
		return errors.New("the marker does not arrive")
	}
}

// settle returns when the server has the subscriptions that are left.
func (a *arena) settle(ended *driver.Hold, left []machinetest.Subscription) {
	var channels []string
	want := make(map[string]int64)
	for _, channel := range redisstore.Channels(ended) {
		channels = append(channels, channel)
		want[channel] = int64(subscribed(channel, left))
		if a.peer != nil && channel == peerChannel(ended.Name) {
			want[channel]++
		}
	}
	a.has(want, channels...)
}

// subscribed returns how many clients have subscribed to a channel.
func subscribed(channel string, left []machinetest.Subscription) int {
	clients := make(map[int]bool)
	for _, other := range left {
		if slices.Contains(redisstore.Channels(other.Hold), channel) {
			clients[other.Client] = true
		}
	}
	return len(clients)
}

// has waits until channels have so many subscribers.
func (a *arena) has(want map[string]int64, channels ...string) {
	require.Eventually(a.t, func() bool {
		have, err := a.admin.PubSubNumSub(context.Background(), channels...).Result()
		return err == nil && fmt.Sprint(have) == fmt.Sprint(want)
	}, time.Minute, time.Millisecond)
}

// peerChannel is the one that other libraries subscribe to.
func peerChannel(name string) string { return "redisson_lock__channel:" + tagOf(name) }

// tagOf returns what the keys and channels of a name have behind their prefix.
func tagOf(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}

// subscribePeer begins or ends the subscription of a client of another library.
func (a *arena) subscribePeer(ctx context.Context, name string, subscribe bool, left []machinetest.Subscription) {
	channel := peerChannel(name)
	if !subscribe {
		require.NoError(a.t, a.peer.Close())
		a.peer = nil
		a.has(map[string]int64{channel: int64(subscribed(channel, left))}, channel)
		return
	}
	a.peer = a.admin.Subscribe(ctx, channel)
	_, err := a.peer.Receive(ctx)
	require.NoError(a.t, err)
}
