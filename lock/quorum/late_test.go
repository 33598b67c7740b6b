package quorum_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// A request that reaches one node after its cleanup has no effect there.
func TestLateRequestAtOneNodeChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var clients []redis.UniversalClient
		var admins []*redis.Client
		network := new(redistest.Late)
		defer network.Close()
		for i := range 3 {
			server := locktest.Start(t)
			options := *server.Client(t).Options()
			if i == 2 {
				options.Dialer = network.Over(options.Dialer)
			}
			client := redis.NewClient(&options)
			t.Cleanup(func() { require.NoError(t, client.Close()) })
			clients, admins = append(clients, client), append(admins, server.Client(t))
		}
		store := assemble(t, quorum.Config{NodeTimeout: nodeTimeout}, clients...)
		h := hold("me:1")
		h.TTL = time.Hour
		keys := func() (n int64) {
			for _, admin := range admins {
				n += admin.Exists(t.Context(), "a").Val()
			}
			return n
		}
		acquire := func() {
			t.Helper()
			h.Count = 1
			answer, err := store.Acquire(t.Context(), h)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, answer.Verdict)
			pass(2 * nodeTimeout) // the third node's request has timed out
		}
		release := func() {
			t.Helper()
			h.Count = 0
			_, err := store.Release(t.Context(), h)
			require.NoError(t, err)
			pass(3 * time.Second) // for the cleanup
		}
		acquire() // the nodes have their connections and scripts
		require.EqualValues(t, 3, keys())
		release()
		require.Zero(t, keys())

		network.Hold(true)
		acquire()
		network.Hold(false)
		require.EqualValues(t, 2, keys())
		release()
		require.Zero(t, keys())
		require.Positive(t, network.Deliver())
		pass(time.Second)
		assert.Zero(t, keys(), "a lock that no caller has")
	})
}

// The cleanup of a hold ends when the node has confirmed it, even if the node keeps the
// hold longer than its TTL and is away for as long.
func TestCleanupEndsWhenConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		all[2].fast = 0.001 // as if its clock was set back
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		granted(t, store, h)
		all[2].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		h.Count = 0
		_, err := store.Release(t.Context(), h)
		require.NoError(t, err)
		pass(10 * ttl)
		require.Equal(t, 1, holders(all, "a"))
		all[2].set(nil)
		pass(2 * time.Second)
		assert.Zero(t, holders(all, "a"))
	})
}

// The release that ends the cleanup of a request with an unknown outcome is sent a second
// after the request's deadline, when the request cannot arrive any more.
func TestCleanupOutlastsRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		all[2].set(acquiresLate(nodeTimeout + 990*time.Millisecond))
		h := hold("me:1")
		_, err := store.Acquire(t.Context(), h)
		require.NoError(t, err)
		pass(2 * nodeTimeout) // the third node's request has timed out
		h.Count = 0
		_, err = store.Release(t.Context(), h)
		require.NoError(t, err)
		pass(time.Second + nodeTimeout)
		require.Equal(t, 1, all[2].arrived())
		assert.Zero(t, holders(all, "a"))
	})
}

// An attempt that was refused is released at a node that has not answered, up to when its request can no
// longer arrive.
func TestCleanupOutlastsRefusedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		for _, b := range all[:2] {
			b.give("a", "another", time.Hour)
		}
		all[2].set(acquiresLate(nodeTimeout + 990*time.Millisecond))
		answer, err := store.Acquire(t.Context(), hold("me:1"))
		require.NoError(t, err)
		require.Equal(t, driver.Refused, answer.Verdict)
		pass(time.Second + 2*nodeTimeout)
		require.Equal(t, 1, all[2].arrived())
		assert.Empty(t, all[2].holder("a"))
	})
}

// cluster is a node whose groups may fail alone. A lock's group is the part of its name before
// the colon.
type cluster struct{ *booth }

func (cluster) Group(name string, _ any) string {
	group, _, _ := strings.Cut(name, ":")
	return group
}

// What one group of a node has not released is released as soon as it answers, while another
// group of the node does not answer and has much to release.
func TestUnresponsiveGroupDelaysNoCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		require.Empty(t, over(t, quorum.Config{}, stores...).Group("other:0", nil), "no node has groups")
		stores[2] = cluster{all[2]}
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		require.Equal(t, store.Group("mute:0", nil), store.Group("mute:1", nil))
		require.NotEqual(t, store.Group("mute:0", nil), store.Group("other:0", nil))
		names := []string{"other:0"}
		for i := range 100 {
			names = append(names, fmt.Sprint("mute:", i))
		}
		holds := make([]*driver.Hold, len(names))
		for i, name := range names {
			holds[i] = &driver.Hold{Name: name, Owner: "me:1", Count: 1, TTL: time.Hour}
			_, err := store.Acquire(t.Context(), holds[i])
			require.NoError(t, err)
		}
		synctest.Wait()
		all[2].set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		for _, h := range holds {
			h.Count = 0
			_, err := store.Release(t.Context(), h)
			require.NoError(t, err)
		}
		pass(time.Second)
		require.Equal(t, len(names), held(all, names))
		all[2].set(func(_ string, h *driver.Hold) mishap { return mishap{lost: strings.HasPrefix(h.Name, "mute:")} })
		pass(3 * time.Second)
		assert.Zero(t, holders(all, "other:0"))
		assert.Equal(t, len(names)-1, held(all, names), "the other group still does not answer")
	})
}

// held returns how many locks are held at the booths.
func held(all []*booth, names []string) (n int) {
	for _, name := range names {
		n += holders(all, name)
	}
	return n
}

// granted acquires a hold, and returns when all nodes that answer at once have answered.
func granted(t *testing.T, store *quorum.Store, h *driver.Hold) {
	t.Helper()
	answer, err := store.Acquire(t.Context(), h)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, answer.Verdict)
	synctest.Wait()
}

// A release that its caller repeats during an outage is one leftover at each node: it takes no place
// of another's, and a node that is back gets it once.
func TestRepeatedReleaseIsOneLeftover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		h.TTL = time.Hour
		granted(t, store, h)
		for _, b := range all[1:] {
			b.set(func(string, *driver.Hold) mishap { return mishap{lost: true} })
		}
		h.Count = 0
		for range 100 {
			_, err := store.Release(t.Context(), h)
			require.ErrorIs(t, err, driver.ErrUnavailable)
		}
		synctest.Wait()
		releases := 0
		for _, b := range all[1:] {
			b.set(func(string, *driver.Hold) mishap {
				releases++
				return mishap{}
			})
		}
		pass(10 * time.Second)
		require.Zero(t, holders(all, "a"))
		require.Equal(t, 2, releases)
	})
}

// A release of what no majority has granted needs no node: each grant of a minority is released by
// the store itself.
func TestReleaseOfNoGrantAsksNoNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		behave(all, []behaviour{grants, out, out})
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		_, err := store.Acquire(t.Context(), h)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		h.Count = 0
		held, err := store.Release(t.Context(), h)
		require.NoError(t, err)
		require.False(t, held)
		synctest.Wait()
		require.Zero(t, holders(all, "a"))
	})
}

// A hold that a majority has released is no grant any more: to release it again needs no node.
func TestReleasedGrantIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		granted(t, store, h)
		h.Count = 0
		held, err := store.Release(t.Context(), h)
		require.NoError(t, err)
		require.True(t, held)
		behave(all, []behaviour{out, out, out})
		held, err = store.Release(t.Context(), h)
		require.NoError(t, err)
		require.False(t, held)
	})
}

// A store forgets the grants that have ended without a release, once there are many, and no others: their
// releases are for nodes that know them.
func TestForgetsGrantsThatHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		acquire := func(name string, ttl time.Duration) {
			h := hold("me:1")
			h.Name, h.TTL = name, ttl
			granted(t, store, h)
		}
		const many = 1 << 10
		acquire("held", time.Hour)
		for i := range many - 2 {
			acquire(fmt.Sprint("ended ", i), ttl)
		}
		pass(ttl + time.Second)
		acquire("has just ended", ttl/2)
		pass(ttl - time.Millisecond) // and a node may keep it for a little longer
		acquire("another", ttl)
		var requests atomic.Int64
		for _, b := range all {
			b.set(func(string, *driver.Hold) mishap {
				requests.Add(1)
				return mishap{}
			})
		}
		for name, want := range map[string]int64{"held": 3, "ended 0": 0, fmt.Sprint("ended ", many-3): 0, "has just ended": 3, "another": 3} {
			requests.Store(0)
			h := hold("me:1")
			h.Name, h.Count = name, 0
			_, err := store.Release(t.Context(), h)
			require.NoError(t, err)
			synctest.Wait()
			require.Equal(t, want, requests.Load(), name)
		}
	})
}

// A node that certainly has nothing, as one that was out of reach or refused the client, is sent the
// release of its caller alone: a node that refuses all day would otherwise be busy with releases.
func TestNothingIsReleasedAgainWhereNothingWasGranted(t *testing.T) {
	for name, err := range map[string]error{"out of reach": errOut, "refused for good": errBroken, "held by another": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(3)
				releases := 0
				all[2].set(func(request string, _ *driver.Hold) mishap {
					if request == "release" {
						releases++
					}
					return mishap{err: err}
				})
				all[2].give("a", "other:1", time.Hour)
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				h := hold("me:1")
				granted(t, store, h)
				h.Count = 0
				_, err := store.Release(t.Context(), h)
				require.NoError(t, err)
				pass(time.Minute)
				require.Equal(t, 1, releases)
			})
		})
	}
}

// unfinished is a node that answers an acquisition at its second request.
type unfinished struct {
	*booth
	asked bool
}

func (u *unfinished) AcquireProposing(ctx context.Context, h *driver.Hold, token int64) (driver.Answer, time.Time, error) {
	if !u.asked {
		u.asked = true
		return driver.Answer{Verdict: driver.Refused, Unfinished: true}, time.Time{}, nil
	}
	return u.booth.AcquireProposing(ctx, h, token)
}

// A node whose client panicked as it returned the grant has the hold: it is released there.
func TestReleasedWhereTheClientPanicked(t *testing.T) {
	for name, as := range map[string]func(*booth) driver.Store{
		"AtOnce":            func(b *booth) driver.Store { return b },
		"AtItsSecondAnswer": func(b *booth) driver.Store { return &unfinished{booth: b} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(3)
				stores[2] = as(all[2])
				all[2].set(func(request string, _ *driver.Hold) mishap {
					if request == "acquire" {
						return mishap{returning: func() { panic("oops") }}
					}
					return mishap{err: errOut}
				})
				store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
				h := hold("me:1")
				h.TTL = time.Hour
				granted(t, store, h)
				h.Count = 0
				_, err := store.Release(t.Context(), h)
				require.NoError(t, err)
				require.Equal(t, 1, holders(all, "a"))
				all[2].set(nil)
				pass(time.Minute)
				require.Zero(t, holders(all, "a"))
			})
		})
	}
}

// An owner that acquires a lock anew after a release that failed keeps it: what the store still
// releases is the earlier hold.
func TestAcquiresAnewAfterAFailedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		h := hold("me:1")
		h.TTL = time.Hour
		granted(t, store, h)
		for _, b := range all[1:] {
			b.set(func(request string, _ *driver.Hold) mishap { return mishap{lost: request == "release"} })
		}
		release := *h
		release.Count = 0
		_, err := store.Release(t.Context(), &release)
		require.ErrorIs(t, err, driver.ErrUnavailable)
		for _, b := range all[1:] {
			b.lose() // or they refuse the hold until its release is repeated
		}
		granted(t, store, h)
		for _, b := range all {
			b.set(nil)
		}
		pass(time.Minute)
		require.Equal(t, 3, holders(all, h.Name))
	})
}
