package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/renewal"
)

func TestNewRefuses(t *testing.T) {
	_, stores := booths(5)
	none := &without{stores[0]}
	for what, test := range map[string]struct {
		stores []driver.Store
		config quorum.Config
		says   string
	}{
		"none":              {nil, quorum.Config{}, "3 and more"},
		"one":               {stores[:1], quorum.Config{}, "use a single store directly"},
		"an even number":    {stores[:4], quorum.Config{}, "as many failures as 3"},
		"the same twice":    {append(stores[:4:4], stores[1]), quorum.Config{}, "stores 1 and 4 are the same"},
		"nil":               {[]driver.Store{stores[0], nil, stores[2]}, quorum.Config{}, "store 1 is nil"},
		"too many":          {func() []driver.Store { _, all := booths(33); return all }(), quorum.Config{}, "up to 31"},
		"a negative time":   {stores, quorum.Config{NodeTimeout: -1}, "outside 0"},
		"an endless time":   {stores, quorum.Config{NodeTimeout: math.MaxInt64}, "outside 0"},
		"one without mutex": {[]driver.Store{none, stores[1], stores[2]}, quorum.Config{}, "store 0"},
		"one, as a move":    {stores[:1], quorum.Config{Move: true}, "2 with Move"},
		"tokens of their own": {
			[]driver.Store{wrapped{stores[0], nil}, stores[1], wrapped{stores[2], nil}}, quorum.Config{}, "stores [0 2] count fencing tokens of their own",
		},
	} {
		_, err := quorum.New(test.stores, test.config)
		require.ErrorContains(t, err, test.says, what)
	}
	odd := wrapped{stores[0], []int{1}} // only its type is comparable
	for what, accepted := range map[string]struct {
		stores []driver.Store
		config quorum.Config
	}{
		"the same twice, which cannot be known":       {[]driver.Store{odd, odd, stores[1]}, quorum.Config{LooseTokens: true}},
		"one in three with tokens of its own":         {[]driver.Store{odd, stores[0], stores[1]}, quorum.Config{}},
		"two in four with tokens of their own, moved": {[]driver.Store{odd, odd, stores[0], stores[1]}, quorum.Config{Move: true}},
		"two, moved": {stores[:2], quorum.Config{Move: true}},
	} {
		store, err := quorum.New(accepted.stores, accepted.config)
		require.NoError(t, err, what)
		require.NoError(t, store.Close())
	}
	_, err := quorum.New([]driver.Store{none, stores[1], stores[2]}, quorum.Config{})
	require.ErrorIs(t, err, driver.ErrUnsupported)
	store, err := quorum.New(stores, quorum.Config{})
	require.NoError(t, err)
	require.NoError(t, store.Close())
}

// without is a store without mutexes.
type without struct{ driver.Store }

func (*without) Supports(driver.Kind) error { return driver.ErrUnsupported }

// wrapped is a store that cannot be compared with itself.
type wrapped struct {
	driver.Store
	more any
}

// Kinds that cannot keep their meaning are refused everywhere, with the reason.
func TestRefusesOtherKinds(t *testing.T) {
	_, stores := booths(3)
	store := over(t, quorum.Config{}, stores...)
	for kind := driver.KindMutex + 1; kind < 20; kind++ {
		h := hold("me:1")
		h.Kind = kind
		_, acquire := store.Acquire(t.Context(), h)
		_, release := store.Release(t.Context(), h)
		_, subscribe := store.Subscribe(t.Context(), h, func(driver.Notice) {})
		for _, err := range []error{store.Supports(kind), acquire, release, subscribe} {
			require.ErrorIs(t, err, driver.ErrUnsupported, kind)
			require.ErrorIs(t, err, driver.ErrNotDone, kind)
			require.ErrorContains(t, err, "a quorum supports no")
		}
	}
}

// A few nodes that are down make acquisitions and their errors no slower, and the error
// names each of them.
func TestErrorNamesNodesThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		behave(all, []behaviour{grants, refuses, mute, out, broken})
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		_, err := store.Acquire(t.Context(), hold("me:1"))
		assert.EqualError(t, err, `quorum: acquire "a": done by 1 of 5 nodes, 3 are needed (node 0: done; `+
			`node 1: refused, held by another owner (TTL 10s); node 2: no answer: lock: the store is unavailable: context deadline exceeded; `+
			`node 3: out: lock: the store is unavailable, lock: the store has done nothing; node 4: broken: lock: the store has done nothing)`)
		require.ErrorIs(t, err, errBroken)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrNotDone)
		require.NotErrorAs(t, err, new(*nodeError))
	})
}

// nodeError is an error of a node's own.
type nodeError struct{ code int }

func (*nodeError) Error() string { return "a node's error" }

func TestErrorsOfNodesAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		_, err := store.Acquire(t.Context(), hold("me:1"))
		require.NoError(t, err)
		synctest.Wait()
		for i, b := range all {
			b.set(func(string, *driver.Hold) mishap { return mishap{err: &nodeError{i}} })
		}
		_, err = store.Acquire(t.Context(), hold("me:2"))
		var found *nodeError
		require.ErrorAs(t, err, &found)
		require.NotErrorIs(t, err, driver.ErrUnavailable, "it does not pass by itself")
		_, err = store.Release(t.Context(), hold("me:1"))
		require.ErrorAs(t, err, &found)
		_, err = store.Subscribe(t.Context(), hold("me:1"), func(driver.Notice) {})
		require.ErrorAs(t, err, &found)
		err = store.Announce(t.Context(), driver.Client{ID: "me"}, time.Hour)
		require.ErrorAs(t, err, &found)
		pass(ttl + time.Second) // holds that cannot be released are left to their TTL
	})
}

// The end of a context ends the call at once, and its requests are cleaned up afterwards.
func TestCancelledAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		for _, b := range all {
			b.set(func(string, *driver.Hold) mishap {
				return mishap{there: 50 * time.Millisecond, back: 50 * time.Millisecond}
			})
		}
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		begin := time.Now()
		_, err := store.Acquire(ctx, hold("me:1"))
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, 20*time.Millisecond, time.Since(begin))
		pass(40 * time.Millisecond)
		require.Equal(t, 5, holders(all, "a"), "the requests have arrived")
		pass(100 * time.Millisecond)
		require.Zero(t, holders(all, "a"), "and were taken back when they were answered")
	})
}

// A request takes a third of the lock's TTL at most.
func TestShortTTLBoundsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		behave(all, []behaviour{mute, mute, mute})
		h := hold("me:1")
		h.TTL = nodeTimeout
		begin := time.Now()
		_, err := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...).Acquire(t.Context(), h)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.Equal(t, h.TTL/3, time.Since(begin))
		pass(2 * time.Second) // the cleanup's last release is confirmed
	})
}

// A request has the deadline of its caller: a node that it reaches more than a second later refuses it.
func TestCallersDeadlineBoundsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		const limit = nodeTimeout / 4
		for _, b := range all {
			b.set(func(request string, _ *driver.Hold) mishap {
				if request != "acquire" {
					return mishap{}
				}
				return mishap{there: limit + time.Second + limit}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...).Acquire(ctx, hold("me:1"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		pass(5 * time.Second)
		for _, b := range all {
			require.Zero(t, b.arrived())
		}
	})
}

// A node that has left its last request unanswered is not waited for where its reply decides nothing.
func TestNodeThatIsMuteIsNotWaitedFor(t *testing.T) {
	for _, request := range []string{"acquire", "renew"} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(5)
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				all[4].set(func(r string, _ *driver.Hold) mishap { return mishap{lost: r == request} })
				h := hold("me:1")
				granted(t, store, h)
				pass(nodeTimeout)
				items := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}}
				store.Renew(t.Context(), items)
				require.Equal(t, renewal.Renewed, items[0].Outcome)
				if request == "acquire" {
					granted(t, store, h)
				}
				pass(nodeTimeout)
				for _, b := range all[1:4] {
					b.set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
				}
				all[4].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
				another := hold("me:2")
				another.Name = "b"
				begin := time.Now()
				_, err := store.Acquire(t.Context(), another)
				require.ErrorIs(t, err, driver.ErrUnavailable)
				require.Zero(t, time.Since(begin))
				all[4].set(nil)
				pass(2 * time.Second)
				require.Zero(t, holders(all, another.Name))
			})
		})
	}
}

// A further hold is not refused as lost while nodes that do not answer may have the lock.
func TestFurtherHoldOfALockThatMayBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		granted(t, store, h)
		out := func(string, *driver.Hold) mishap { return mishap{err: errOut} }
		all[0].lose()
		all[1].set(out)
		all[2].set(out)
		h.Count = 2
		_, err := store.Acquire(t.Context(), h)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		all[3].lose()
		all[4].lose()
		answer, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, driver.NotHeld, answer.Verdict)
	})
}

// A hold that is acquired again while it lasts keeps its token, although a node has lost its data and
// counts further.
func TestAcquiredAgainWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		acquire := func() int64 {
			t.Helper()
			answer, err := store.Acquire(t.Context(), hold("me:1"))
			require.NoError(t, err)
			require.Equal(t, driver.Granted, answer.Verdict)
			synctest.Wait()
			return answer.Token
		}
		token := acquire()
		pass(ttl / 2)
		for _, b := range all[1:] {
			b.lose()
		}
		require.Equal(t, token, acquire())
		pass(ttl)
		later := acquire()
		require.Greater(t, later, token, "it has ended")
		pass(ttl / 2)
		for _, b := range all[1:] {
			b.lose()
		}
		require.Equal(t, later, acquire())
	})
}

// A hold that cannot be acquired again in an outage stays where it is.
func TestAcquiredAgainInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		granted(t, store, h)
		for _, b := range all[:2] {
			b.set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		}
		_, err := store.Acquire(t.Context(), h)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		for _, b := range all[:2] {
			b.set(nil)
		}
		pass(ttl / 2)
		require.Equal(t, 3, holders(all, h.Name))
	})
}

// Close waits for pending releases, and no longer than they can take.
func TestCloseWaitsForCleanUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		slow := func(string, *driver.Hold) mishap { return mishap{there: 80 * time.Millisecond} }
		all[1].set(slow)
		all[2].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		_, err = store.Acquire(ctx, hold("me:1"))
		require.ErrorIs(t, err, context.Canceled)
		begin := time.Now()
		require.NoError(t, store.Close())
		assert.LessOrEqual(t, time.Since(begin), 4*nodeTimeout)
		require.Zero(t, holders(all, "a"))
		_, err = store.Acquire(t.Context(), hold("me:2"))
		require.ErrorIs(t, err, driver.ErrNotDone)
		require.ErrorIs(t, store.Announce(t.Context(), driver.Client{ID: "me"}, ttl), driver.ErrNotDone)
		items := []renewal.Item{{Key: "a", Owner: "me:1", Ref: driver.KindMutex, TTL: ttl}}
		store.Renew(t.Context(), items)
		require.ErrorIs(t, items[0].Err, driver.ErrNotDone)
		require.NoError(t, store.Close(), "twice is fine")
	})
}

// Close does not wait for nodes that did not answer before. One that is back by then gets
// one more request.
func TestCloseDoesNotWaitForUnresponsiveNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(t, err)
		h := hold("me:1")
		_, err = store.Acquire(t.Context(), h)
		require.NoError(t, err)
		synctest.Wait() // the other nodes have granted it, too
		for _, b := range all[:2] {
			b.set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		}
		h.Count = 0
		_, err = store.Release(t.Context(), h)
		require.NoError(t, err)
		pass(nodeTimeout + time.Millisecond) // now they are known to be mute
		all[1].set(nil)
		begin := time.Now()
		require.NoError(t, store.Close())
		assert.Less(t, time.Since(begin), nodeTimeout/2)
		assert.NotEmpty(t, all[0].holder("a"))
		assert.Empty(t, all[1].holder("a"), "it is back")
	})
}

// punctual is a node whose client ends a release at its deadline, and not before.
type punctual struct{ *booth }

func (p punctual) Release(ctx context.Context, h *driver.Hold) (held bool, err error) {
	by, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), by)
	defer cancel()
	return p.booth.Release(ctx, h)
}

// Close takes twice NodeTimeout at most, though a client ends requests at their deadlines only, and one slow
// release follows the other.
func TestCloseBoundsTheLastRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		stores[2] = punctual{all[2]}
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(t, err)
		var holds []*driver.Hold
		for i := range 5 {
			h := hold("me:1")
			h.Name = fmt.Sprint("lock ", i)
			granted(t, store, h)
			holds = append(holds, h)
		}
		all[2].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		for _, h := range holds {
			h.Count = 0
			_, err := store.Release(t.Context(), h)
			require.NoError(t, err)
		}
		all[2].set(func(string, *driver.Hold) mishap { return mishap{there: nodeTimeout * 9 / 10} })
		time.Sleep(nodeTimeout / 2)
		begin := time.Now()
		require.NoError(t, store.Close())
		assert.Equal(t, 2*nodeTimeout, time.Since(begin))
		time.Sleep(nodeTimeout) // the last release arrives
	})
}

// Close waits for no subscription, which nothing needs any more.
func TestCloseEndsSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(t, err)
		all[0].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		sub, err := store.Subscribe(t.Context(), hold("me:1"), func(driver.Notice) {})
		require.NoError(t, err)
		defer sub.Close()
		all[1].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		result := make(chan error, 1)
		go func() {
			_, err := store.Subscribe(t.Context(), hold("me:2"), func(driver.Notice) {})
			result <- err
		}()
		synctest.Wait()
		begin := time.Now()
		require.NoError(t, store.Close())
		assert.Zero(t, time.Since(begin))
		require.ErrorContains(t, <-result, context.Canceled.Error())
	})
}

// Close ends the restoration of a lease at a node that is mute.
func TestCloseEndsARestoration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
		require.NoError(t, err)
		h := hold("me:1")
		granted(t, store, h)
		all[2].lose()
		tries := 0
		all[2].set(func(request string, _ *driver.Hold) mishap {
			if request == "acquire" {
				tries++
			}
			return mishap{lost: request == "acquire" && tries < 100}
		})
		store.Renew(t.Context(), []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}})
		pass(5 * nodeTimeout)
		require.Greater(t, tries, 1)
		begin := time.Now()
		require.NoError(t, store.Close())
		require.LessOrEqual(t, time.Since(begin), nodeTimeout)
		require.Less(t, tries, 100)
	})
}

// A subscription that is closed as a node's begins leaves none there.
func TestSubscriptionIsClosedAsANodeJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		subs := make(chan driver.Subscription, 1)
		all[2].set(func(string, *driver.Hold) mishap {
			return mishap{back: time.Millisecond, returning: func() { (<-subs).Close() }}
		})
		sub, err := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...).Subscribe(t.Context(), hold("me:1"), func(driver.Notice) {})
		require.NoError(t, err)
		subs <- sub
		pass(time.Second)
		for _, b := range all {
			require.Empty(t, b.listen)
		}
	})
}

// A node that is mute for a while, longer than a release waits for it, gets the release
// again.
func TestReleaseIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		granted(t, store, h)
		require.Equal(t, 3, holders(all, "a"))
		all[1].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		h.Count = 0
		held, err := store.Release(t.Context(), h)
		require.NoError(t, err)
		require.True(t, held)
		pass(ttl / 2)
		require.Equal(t, 1, holders(all, "a"))
		all[1].set(nil)
		pass(2 * time.Second)
		require.Zero(t, holders(all, "a"), "long before its TTL")
	})
}

// A hold is kept for a while only if a majority keeps it. Nothing that comes late ends it.
func TestKeepsAHold(t *testing.T) {
	const keep = 100 * ttl
	out := func(string, *driver.Hold) mishap { return mishap{err: errOut} }
	for name, test := range map[string]struct {
		acquire, release []func(string, *driver.Hold) mishap // of each node
		lost             int                                 // nodes that lose it before
		held             bool
		left             int // nodes that keep it
	}{
		"ByAll":          {nil, nil, 0, true, 3},
		"ByAMajority":    {nil, []func(string, *driver.Hold) mishap{out, nil, nil}, 0, true, 2},
		"ByTooFew":       {[]func(string, *driver.Hold) mishap{nil, nil, out}, []func(string, *driver.Hold) mishap{nil, out, nil}, 0, false, 1},
		"ByNone":         {nil, []func(string, *driver.Hold) mishap{out, out, out}, 0, false, 0},
		"LostByAll":      {nil, nil, 3, false, 0},
		"LostByTwo":      {nil, nil, 2, false, 1},
		"AfterALateNode": {[]func(string, *driver.Hold) mishap{nil, nil, func(string, *driver.Hold) mishap { return mishap{back: nodeTimeout / 2} }}, nil, 0, true, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(3)
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				ill := func(ways []func(string, *driver.Hold) mishap) {
					for i := range all {
						all[i].set(nil)
						if ways != nil {
							all[i].set(ways[i])
						}
					}
				}
				ill(test.acquire)
				h := hold("me:1")
				granted(t, store, h) // or the release overtakes the acquisition on its way to a node, which then does not keep it
				for _, b := range all[:test.lost] {
					b.lose()
				}
				ill(test.release)
				h.Count, h.Keep = 0, keep
				held, err := store.Release(t.Context(), h)
				require.Equal(t, test.held, held)
				if test.held || test.lost > 0 {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, driver.ErrUnavailable)
					require.Equal(t, test.left == 0, errors.Is(err, driver.ErrNotDone), "%v", err)
				}
				ill(nil)
				pass(2 * ttl)
				require.Equal(t, test.left, holders(all, "a"))
				pass(keep)
				require.Zero(t, holders(all, "a"))
			})
		})
	}
}

// A hold is kept again after a renewal that was on its way when it was kept: that gave it its TTL again.
func TestKeepsAHoldAfterALateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		renewing := make(chan struct{}, len(all))
		for _, b := range all {
			b.set(func(request string, _ *driver.Hold) mishap {
				if request != "renew" {
					return mishap{}
				}
				renewing <- struct{}{}
				return mishap{there: nodeTimeout / 2}
			})
		}
		const keep = 100 * ttl
		l := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{TTL: ttl})
		lease, err := l.Mutex("a").With(lock.Options{MinHold: keep}).Lock(t.Context())
		require.NoError(t, err)
		for range all {
			<-renewing
		}
		ctx, cancel := context.WithTimeout(t.Context(), nodeTimeout*3/4) // a half is not enough for the renewal
		defer cancel()
		require.NoError(t, lease.Unlock(ctx))
		pass(keep - 2*ttl)
		require.GreaterOrEqual(t, holders(all, "a"), 2, "a majority keeps it, if not the node whose renewal came last")
		pass(2 * ttl)
		require.Zero(t, holders(all, "a"))
	})
}

// An owner that finds out that it has lost its lock leaves nothing at a node that could not be asked then. Its
// next grant is by a name of its own, which a late release of the former does not end.
func TestLostHoldIsReleasedWhereItIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		h.TTL = time.Hour
		granted(t, store, h)
		former := all[2].holder(h.Name)
		for _, b := range all[:2] {
			b.lose()
			b.give(h.Name, "other:1", time.Hour)
		}
		all[2].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		answer, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		require.Equal(t, driver.Refused, answer.Verdict)
		require.Equal(t, 3, holders(all, h.Name))
		all[2].set(nil)
		pass(3 * time.Second)
		require.Empty(t, all[2].holder(h.Name))
		require.Equal(t, 2, holders(all, h.Name))
		all[0].lose()
		granted(t, store, h)
		require.NotEmpty(t, all[2].holder(h.Name))
		require.NotEqual(t, former, all[2].holder(h.Name))
	})
}

// An acquisition that comes late to a node, after the release, leaves nothing there.
func TestLateAcquisitionIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		all[2].set(acquiresLate(nodeTimeout / 2))
		h := hold("me:1")
		_, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		h.Count = 0
		_, err = store.Release(t.Context(), h)
		require.NoError(t, err)
		pass(nodeTimeout/2 - time.Millisecond)
		require.Zero(t, all[2].arrived(), "it has not come yet")
		pass(time.Millisecond)
		require.Equal(t, 1, all[2].arrived())
		require.Zero(t, holders(all, "a"), "and is ended as soon as it is known to have come")
	})
}

// Of contenders that ask at the same instant one gets the lock, and the others soon learn
// that they do not.
func TestSplitVotesAreSettled(t *testing.T) {
	for _, contenders := range []int{2, 3, 5, 10} {
		granted, rounds := 0, 30
		var longest time.Duration
		synctest.Test(t, func(t *testing.T) {
			for range rounds {
				all, stores := booths(5)
				for _, b := range all {
					b.set(func(string, *driver.Hold) mishap {
						return mishap{there: rand.N(time.Millisecond), back: rand.N(time.Millisecond)}
					})
				}
				won := make(chan bool, contenders)
				begin := time.Now()
				var closers []func() error
				for i := range contenders {
					store, err := quorum.New(stores, quorum.Config{NodeTimeout: nodeTimeout})
					require.NoError(t, err)
					closers = append(closers, store.Close)
					go func() {
						answer, err := store.Acquire(context.Background(), hold("client"+string(rune('a'+i))+":1"))
						won <- err == nil && answer.Verdict == driver.Granted
					}()
				}
				winners := 0
				for range contenders {
					if <-won {
						winners++
					}
				}
				longest = max(longest, time.Since(begin))
				require.LessOrEqual(t, winners, 1)
				granted += winners
				for _, c := range closers {
					require.NoError(t, c())
				}
			}
		})
		t.Logf("%d contenders: one of them had the lock in %d of %d rounds, and all had their answer within %v", contenders, granted, rounds, longest)
		assert.Greater(t, granted, rounds*9/10)
		assert.Less(t, longest, nodeTimeout)
	}
}

// Waiters are woken once a majority has received the release, and in any case soon after
// one node has reported it.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		var wakes []time.Duration
		begin := time.Now()
		sub, err := store.Subscribe(t.Context(), hold("me:1"), func(driver.Notice) { wakes = append(wakes, time.Since(begin)) })
		require.NoError(t, err)
		synctest.Wait() // for the nodes that were not needed
		ring := func(nodes ...int) {
			for _, i := range nodes {
				all[i].mu.Lock()
				all[i].ring("a")
				all[i].mu.Unlock()
			}
		}
		ring(0, 1, 0)
		require.Empty(t, wakes, "two of five are too few, also with two releases")
		ring(2)
		require.Len(t, wakes, 1, "three do")
		ring(3, 4)
		require.Len(t, wakes, 1, "the others report the same")
		ring(2, 0, 4)
		require.Len(t, wakes, 2, "another release at the same instant")
		pass(time.Second)
		require.Len(t, wakes, 2)

		begin, wakes = time.Now(), nil
		ring(3)
		pass(time.Second)
		require.Equal(t, []time.Duration{50 * time.Millisecond}, wakes, "one is enough, a little later")

		ring(1)
		sub.Close()
		pass(time.Second)
		ring(0, 1, 2, 3, 4)
		require.Len(t, wakes, 1, "nobody is woken after Close")
		for _, b := range all {
			require.Empty(t, b.listen)
		}
	})
}

// Subscriptions that come late are kept, and those that come too late are closed.
func TestSubscribesPastIllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		late := func(string, *driver.Hold) mishap { return mishap{back: nodeTimeout / 2} }
		all[0].set(late)
		all[1].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		begin := time.Now()
		sub, err := store.Subscribe(t.Context(), hold("me:1"), func(driver.Notice) {})
		require.NoError(t, err)
		require.Zero(t, time.Since(begin))
		pass(nodeTimeout)
		require.Len(t, all[0].listen, 1)
		sub.Close()
		require.Empty(t, all[0].listen)

		sub, err = store.Subscribe(t.Context(), hold("me:1"), func(driver.Notice) {})
		require.NoError(t, err)
		sub.Close()
		pass(nodeTimeout)
		for _, b := range all {
			require.Empty(t, b.listen)
		}

		all[0].set(nil)
		all[2].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		all[3].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		_, err = store.Subscribe(t.Context(), hold("me:1"), func(driver.Notice) {})
		require.ErrorIs(t, err, driver.ErrUnavailable)
		for _, b := range all {
			require.Empty(t, b.listen)
		}
	})
}

// A subscription that began while nodes were out, or refused it, has theirs, too, once they are back:
// without them it is woken late when others are out.
func TestSubscribesWhereNodesAreBack(t *testing.T) {
	for name, ill := range map[string]mishap{
		"Out": {err: errOut}, "Mute": {lost: true}, "Refusing": {err: errors.New("no permission")}, "Panicking": {panics: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(3)
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				all[0].set(func(string, *driver.Hold) mishap { return ill })
				sub, err := store.Subscribe(t.Context(), hold("me:1"), func(driver.Notice) {})
				require.NoError(t, err)
				pass(time.Minute)
				require.Empty(t, all[0].listen)
				all[0].set(nil)
				pass(time.Minute)
				for _, b := range all {
					require.Len(t, b.listen, 1)
				}
				sub.Close()
				pass(time.Minute)
				for _, b := range all {
					require.Empty(t, b.listen)
				}
			})
		})
	}
}

// tokenWithout acquires and releases the lock while some nodes are out, and returns its
// token.
func tokenWithout(t *testing.T, store *quorum.Store, owner string, out ...*booth) int64 {
	t.Helper()
	for _, b := range out {
		b.set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
		defer b.set(nil)
	}
	h := hold(owner)
	answer, err := store.Acquire(t.Context(), h)
	require.NoError(t, err)
	synctest.Wait()
	h.Count = 0
	_, err = store.Release(t.Context(), h)
	require.NoError(t, err)
	return answer.Token
}

// Tokens grow although the node that counts highest is in one majority only, unless
// LooseTokens is set.
func TestTokensGrowAcrossNodes(t *testing.T) {
	for _, loose := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all, stores := booths(3)
			all[0].skew = time.Hour
			store := over(t, quorum.Config{NodeTimeout: nodeTimeout, LooseTokens: loose}, stores...)
			first := tokenWithout(t, store, "me:1", all[2])  // by nodes 0 and 1
			second := tokenWithout(t, store, "me:2", all[0]) // by nodes 1 and 2
			if loose {
				assert.Less(t, second, first)
			} else {
				assert.Greater(t, second, first)
			}
		})
	}
}

// curt is a node that chooses TTLs of its own.
type curt struct {
	*booth
	ttl time.Duration
}

func (c curt) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (driver.Answer, time.Time, error) {
	answer, clock, err := c.booth.AcquireProposing(ctx, h, token)
	answer.Lease = c.ttl
	return answer, clock, err
}

// The promise ends, as documented, when a single node has lost its counter: a later
// majority may include no other node that has the token.
func TestTokensAfterANodeLostItsCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		all[0].skew = time.Hour
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		first := tokenWithout(t, store, "me:1", all[3], all[4])
		all[2].lose()
		assert.Less(t, tokenWithout(t, store, "me:2", all[0], all[1]), first, "by nodes 2, 3 and 4, of which the first has forgotten")
		pass(time.Hour + time.Millisecond)
		assert.Greater(t, tokenWithout(t, store, "me:3", all[0], all[1]), first, "later by more than the clocks are apart")
	})
}

// A grant that took its whole TTL, or whose token did, is invalid, and is released.
func TestGrantThatTookTooLong(t *testing.T) {
	for _, slow := range []string{"acquire", "fence"} {
		synctest.Test(t, func(t *testing.T) {
			all, stores := booths(3)
			const took = nodeTimeout / 4
			for i, b := range all {
				b.skew = time.Duration(i) * time.Hour
				b.set(func(request string, _ *driver.Hold) mishap {
					if request != slow {
						return mishap{}
					}
					return mishap{back: took}
				})
				stores[i] = curt{b, took}
			}
			all[2].set(func(string, *driver.Hold) mishap { return mishap{err: errOut} })
			store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
			_, err := store.Acquire(t.Context(), hold("me:1"))
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorContains(t, err, "too long for its TTL")
			pass(nodeTimeout)
			require.Zero(t, holders(all, "a"))
		})
	}
}

// begun is a store whose leases begin before the request.
type begun struct {
	driver.Store
	first time.Duration
}

func (s begun) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	a, err := s.Store.Acquire(ctx, h)
	a.First = s.first
	return a, err
}

// The first period of a grant is that of the node that gives least.
func TestFirstPeriodIsTheShortest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		for i, b := range all {
			stores[i] = begun{b, time.Duration(3-i) * time.Second}
			b.set(func(string, *driver.Hold) mishap { return mishap{there: time.Duration(i) * time.Millisecond} })
		}
		a, err := over(t, quorum.Config{NodeTimeout: nodeTimeout, LooseTokens: true}, stores...).Acquire(t.Context(), hold("me:1"))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, a.Verdict)
		require.LessOrEqual(t, a.First, 2*time.Second, "two of three have granted it")
		require.Positive(t, a.First)
		require.Zero(t, a.Lease)
	})
}

// A hold that was released while a node was being restored is not restored there.
func TestHealsNothingThatWasReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		items := leased(t, store, "a", "b")
		all[2].lose()
		var healed []string
		all[2].set(func(request string, h *driver.Hold) mishap {
			if request == "acquire" {
				healed = append(healed, h.Name)
				return mishap{there: nodeTimeout / 2}
			}
			return mishap{}
		})
		store.Renew(t.Context(), items)
		synctest.Wait()
		for _, name := range []string{"a", "b"} {
			h := hold("me:1")
			h.Name, h.Count = name, 0
			held, err := store.Release(t.Context(), h)
			require.NoError(t, err)
			require.True(t, held)
		}
		pass(nodeTimeout * 3 / 4)
		require.Equal(t, []string{"a"}, healed, "which was on its way")
		require.Zero(t, holders(all, "a"), "and was released again as soon as it had arrived")
		require.Zero(t, holders(all, "b"))
	})
}

// A waiter that is granted the lock by a minority, and releases it, is not woken by that,
// and asks again only when another owner releases the lock.
func TestWaiterIsNotWokenByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		for _, b := range all[1:] { // the holder's request to the first was lost
			b.give("a", "other:1", time.Hour)
		}
		l, err := lock.New(over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{TTL: time.Minute, Poll: 24 * time.Hour})
		require.NoError(t, err)
		granted := make(chan *lock.Lease)
		go func() {
			lease, err := l.Mutex("a").Lock(context.Background())
			assert.NoError(t, err)
			granted <- lease
		}()
		pass(10 * time.Second)
		// An acquisition asks a node up to nine times: whether others split the nodes,
		// and whether two are one server. There is one acquisition before the waiter
		// subscribes, one when it does, and one for the first one's release while it
		// subscribes.
		assert.LessOrEqual(t, all[1].arrived(), 3*(8+1))
		for _, b := range all[1:] {
			b.mu.Lock()
			delete(b.locks, "a")
			b.ring("a")
			b.mu.Unlock()
		}
		begin := time.Now()
		lease := <-granted
		assert.Less(t, time.Since(begin), time.Second, "the holder's release wakes it")
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, l.Close())
	})
}

// An acquisition that tries several times releases as often. Those messages do not wake its waiter, and
// they hide no other client's at the same node.
func TestWaiterIsNotWokenByItsEarlierTries(t *testing.T) {
	for name, at := range map[string]time.Duration{"before": 0, "after": nodeTimeout / 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, store, wakes := waiting(t, "me:1")
				all[0].slow = nodeTimeout / 10
				for _, b := range all[1:] {
					b.give("a", "other:1", time.Hour)
					b.set(func(string, *driver.Hold) mishap { return mishap{back: time.Millisecond} })
				}
				answer, err := store.Acquire(t.Context(), hold("me:1"))
				require.NoError(t, err)
				require.Equal(t, driver.Refused, answer.Verdict)
				require.Greater(t, all[0].arrived(), 2, "it tries again")
				pass(at)
				require.Zero(t, *wakes)
				all[0].mu.Lock()
				all[0].slow = 0
				all[0].ring("a")
				all[0].mu.Unlock()
				pass(time.Second)
				require.Equal(t, 1, *wakes)
			})
		})
	}
}

// waiting subscribes an owner to "a" at three nodes, in a bubble. wakes counts its wakes.
func waiting(t *testing.T, owner string) (all []*booth, store *quorum.Store, wakes *int) {
	t.Helper()
	all, stores := booths(3)
	store = over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
	wakes = new(int)
	sub, err := store.Subscribe(t.Context(), hold(owner), func(driver.Notice) { *wakes++ })
	require.NoError(t, err)
	t.Cleanup(sub.Close)
	return all, store, wakes
}

// A waiter is woken by the release of another waiter of its process that has given up, in
// every order of the grant, the refusal and the message.
func TestWaiterIsWokenByWhatAnotherGivesBack(t *testing.T) {
	for first, name := range map[string]string{"first:1": "another", "second:1": "itself, before"} {
		for order, back := range map[string]struct{ grant, refusal time.Duration }{
			"the grant, the refusal, the message": {10 * time.Millisecond, 0},
			"the refusal, the grant, the message": {20 * time.Millisecond, time.Millisecond},
			"the grant, the message, the refusal": {10 * time.Millisecond, 30 * time.Millisecond},
		} {
			t.Run(name+"/"+order, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					all, store, wakes := waiting(t, "second:1")
					replies := func(back time.Duration) {
						for _, b := range all {
							b.set(func(request string, _ *driver.Hold) mishap {
								if request == "release" {
									return mishap{there: 20 * time.Millisecond}
								}
								return mishap{back: back}
							})
						}
					}
					replies(back.grant)
					ctx, giveUp := context.WithCancel(t.Context())
					time.AfterFunc(5*time.Millisecond, giveUp)
					_, err := store.Acquire(ctx, hold(first))
					require.ErrorIs(t, err, context.Canceled)
					pass(7 * time.Millisecond) // the nodes have granted it meanwhile
					replies(back.refusal)
					answer, err := store.Acquire(t.Context(), hold("second:1"))
					require.NoError(t, err)
					require.Equal(t, driver.Refused, answer.Verdict)
					pass(100 * time.Millisecond)
					require.Zero(t, holders(all, "a"))
					require.Equal(t, 1, *wakes)
				})
			})
		}
	}
}

// A waiter whose requests were lost releases what they may have acquired. The holder's
// release still wakes it, before and after its own release has found no hold.
func TestWaiterIsWokenWhileItReleases(t *testing.T) {
	for name, at := range map[string]time.Duration{"before": 10 * time.Millisecond, "after": 30 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, store, wakes := waiting(t, "me:1")
				for _, b := range all {
					b.give("a", "other:1", time.Hour)
					b.set(func(request string, h *driver.Hold) mishap {
						return mishap{lost: request == "acquire", back: 20 * time.Millisecond}
					})
				}
				_, err := store.Acquire(t.Context(), hold("me:1"))
				require.ErrorIs(t, err, driver.ErrUnavailable)
				pass(at)
				for _, b := range all {
					b.mu.Lock()
					b.ring("a")
					b.mu.Unlock()
				}
				pass(100 * time.Millisecond)
				assert.Equal(t, 1, *wakes)
				pass(2 * time.Second) // the cleanup's last release is confirmed
			})
		})
	}
}

// A message that comes during an attempt counts at its end, also if a node without an answer has
// delayed that beyond the time in which the messages of one release are gathered.
func TestMessageDuringALongAttemptWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, store, wakes := waiting(t, "me:1")
		free := func(b *booth) {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.locks, "a")
			b.ring("a")
		}
		for _, b := range all {
			b.give("a", "other:1", time.Hour)
		}
		refused := func() {
			answer, err := store.Acquire(t.Context(), hold("me:1"))
			require.NoError(t, err)
			require.Equal(t, driver.Refused, answer.Verdict)
		}
		all[0].set(func(string, *driver.Hold) mishap { return mishap{back: nodeTimeout * 9 / 20} })
		refused()
		pass(nodeTimeout / 2) // the node is known to be slow: its next reply is waited for
		free(all[0])
		free(all[2])
		require.Equal(t, 1, *wakes)
		all[0].set(func(request string, _ *driver.Hold) mishap { return mishap{lost: request == "acquire"} })
		time.AfterFunc(5*time.Millisecond, func() { free(all[1]) })
		refused()
		pass(time.Second)
		require.Equal(t, 2, *wakes)
		pass(time.Second)
	})
}
