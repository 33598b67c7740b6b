package redisstore_test

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// faultyHook is a user's hook of a client, which calls fail in each phase. Nil: it does nothing.
type faultyHook struct {
	dial, process, pipeline atomic.Pointer[func()]
}

func call(fail *atomic.Pointer[func()]) {
	if f := fail.Load(); f != nil {
		(*f)()
	}
}

func (h *faultyHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		call(&h.dial)
		return next(ctx, network, address)
	}
}

func (h *faultyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		call(&h.process)
		return next(ctx, cmd)
	}
}

func (h *faultyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		call(&h.pipeline)
		return next(ctx, cmds)
	}
}

func hookPanics() { panic("a hook's") }

// A hook that panics in a batch does so for the callers of its requests, as it does for one that is
// sent alone. It does not end the process, and later requests are sent.
func TestHookThatPanicsInABatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail func()
		want any
	}{
		"panic":  {hookPanics, "a hook's"},
		"Goexit": {runtime.Goexit, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, wire := startNetwork(t)
				client, hook := wire.client(t), &faultyHook{}
				client.AddHook(hook)
				store := open(t, client)
				acquire := func(n int) error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := store.Acquire(ctx, heldFor(driver.KindMutex, n))
					return err
				}
				require.NoError(t, acquire(0))
				wire.set(redistest.Fault{Replies: redistest.Drop})
				hook.pipeline.Store(&c.fail)
				for n := range redisstore.MaxInFlight {
					go func() { assert.ErrorIs(t, acquire(n), driver.ErrUnavailable) }()
				}
				synctest.Wait()
				time.Sleep(time.Second / 2) // so that the others, which are queued, outlast them
				for n := range 5 {
					go func() {
						returned := false
						defer func() {
							assert.Equal(t, c.want, recover())
							assert.False(t, returned)
						}()
						assert.NoError(t, acquire(n))
						returned = true
					}()
				}
				synctest.Wait()
				assert.Equal(t, 5, store.Waiting())
				time.Sleep(time.Second)
				synctest.Wait()
				assert.Zero(t, store.Waiting())
				assert.Zero(t, store.InFlight())
				hook.pipeline.Store(nil)
				wire.heal()
				wire.reset(false)
				require.Eventually(t, func() bool { return acquire(0) == nil }, time.Minute, time.Millisecond)
			})
		})
	}
}

// A hook that panics, or ends its goroutine, where the store sends a request of its own makes that an
// error. The next request is sent.
func TestHookThatPanicsInTheBackground(t *testing.T) {
	t.Parallel()
	fail, ends := hookPanics, runtime.Goexit
	acquires := func(ctx context.Context, s *redisstore.Store) error {
		_, err := s.Acquire(ctx, heldFor(driver.KindMutex, 1))
		return err
	}
	subscribes := func(ctx context.Context, s *redisstore.Store) error {
		_, err := s.Subscribe(ctx, heldFor(driver.KindMutex, 1), func(driver.Notice) {})
		return err
	}
	for name, c := range map[string]struct {
		set func(*faultyHook)
		do  func(context.Context, *redisstore.Store) error
	}{
		"the server's clock":         {func(h *faultyHook) { h.process.Store(&fail) }, acquires},
		"the server's clock, Goexit": {func(h *faultyHook) { h.process.Store(&ends) }, acquires},
		"Ping":                       {func(h *faultyHook) { h.process.Store(&fail) }, func(ctx context.Context, s *redisstore.Store) error { return s.Ping(ctx) }},
		"Subscribe":                  {func(h *faultyHook) { h.dial.Store(&fail) }, subscribes},
		"Subscribe, Goexit":          {func(h *faultyHook) { h.dial.Store(&ends) }, subscribes},
		"List": {func(h *faultyHook) { h.process.Store(&fail) }, func(ctx context.Context, s *redisstore.Store) error {
			for _, err := range s.List(ctx, "", func(string) bool { return true }) {
				return err
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := startServer(t)
			client, hook := server.Client(t), &faultyHook{}
			client.AddHook(hook)
			store := open(t, client)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c.set(hook)
			require.ErrorContains(t, c.do(ctx, store), "the client panicked")
			hook.process.Store(nil)
			hook.dial.Store(nil)
			require.NoError(t, c.do(ctx, store))
		})
	}
}

// A hook that panics as the connection of subscriptions breaks, or ends its goroutine, does not end
// the process. The subscriptions go on by another connection, and the store can be closed. go-redis
// dials first in vain; then the subscriptions move.
func TestHookThatPanicsAsASubscriptionBreaks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fail  func()
		dials int32 // before the one that fails
	}{
		"panic": {hookPanics, 0}, "Goexit": {runtime.Goexit, 0},
		"panic in the move": {hookPanics, 1}, "Goexit in the move": {runtime.Goexit, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, admin := startServer(t)
			client, hook := server.Client(t), &faultyHook{}
			client.AddHook(hook)
			store := open(t, client)
			failed, first, second := make(chan struct{}), make(chan struct{}, 10), make(chan struct{}, 10)
			subscribe(t, store, heldFor(driver.KindMutex, 1), func(driver.Notice) { first <- struct{}{} })
			subscribe(t, store, &driver.Hold{Name: "b"}, func(driver.Notice) { second <- struct{}{} })
			var dials atomic.Int32
			failOnce := func() {
				if dials.Add(1) <= c.dials {
					return
				}
				hook.dial.Store(nil)
				close(failed)
				c.fail()
			}
			hook.dial.Store(&failOnce)
			require.EqualValues(t, 1, admin.ClientKillByFilter(t.Context(), "type", "pubsub").Val())
			for _, awaited := range []chan struct{}{failed, first, second} { // as the channels are subscribed again
				select {
				case <-awaited:
				case <-time.After(time.Minute):
					require.Fail(t, "the subscriptions have ended")
				}
			}
		})
	}
}
