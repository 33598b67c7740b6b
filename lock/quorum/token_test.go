package quorum_test

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/memstore"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// freezing is a store of a process that freezes once, after the nodes have granted a lock
// and before the caller gets the result.
type freezing struct {
	driver.Store
	freeze func() // nil once it has
}

func (f *freezing) Acquire(ctx context.Context, h *driver.Hold) (driver.Answer, error) {
	answer, err := f.Store.Acquire(ctx, h)
	if freeze := f.freeze; freeze != nil && err == nil {
		f.freeze = nil
		freeze()
	}
	return answer, err
}

// A lock that is granted after a freeze of the process, in which another owner had it,
// has a larger token than the other.
func TestTokensGrowAcrossAFreeze(t *testing.T) {
	const ttl = time.Second
	for _, skew := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			all, stores := booths(5)
			all[0].skew = skew
			theirs := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{TTL: ttl})
			var between int64
			ours := locker(t, &freezing{Store: over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), freeze: func() {
				time.Sleep(2 * ttl)
				lease, err := theirs.Mutex("a").Lock(t.Context())
				require.NoError(t, err)
				between = lease.Token()
				require.NoError(t, lease.Unlock(t.Context()))
			}}, lock.Config{TTL: ttl})
			lease, err := ours.Mutex("a").Lock(t.Context())
			require.NoError(t, err)
			require.Positive(t, between)
			assert.Greater(t, lease.Token(), between)
			require.NoError(t, lease.Unlock(t.Context()))
		})
	}
}

// Nodes agree on the proposed token if their clocks are less than a second apart: a grant
// then needs one round trip. With clocks further apart the token is written back. Tokens
// grow in both cases, for two processes in turn, whose requests take up to a millisecond.
func TestNodesAgreeOnTokens(t *testing.T) {
	for name, c := range map[string]struct {
		apart       time.Duration // the last and the first of five clocks
		least, most int           // grants of three hundred that need a second round
	}{
		"by the same clock":   {0, 2, 10}, // each store's first
		"by a second at most": {900 * time.Millisecond, 2, 10},
		"by more":             {10 * time.Second, 250, 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all, stores := booths(5)
				var raised atomic.Int64
				for i, b := range all {
					b.skew = c.apart * time.Duration(4-i) / 4
					random := rand.New(rand.NewPCG(1, uint64(i)))
					b.set(func(request string, _ *driver.Hold) mishap {
						if request == "fence" {
							raised.Add(1)
						}
						return mishap{there: time.Duration(random.Int64N(int64(time.Millisecond)))}
					})
				}
				processes := []*quorum.Store{
					over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...),
					over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...),
				}
				random := rand.New(rand.NewPCG(2, 2))
				last, grants := map[string]int64{}, 0
				for i := range 300 {
					before := raised.Load()
					h := hold("me:" + strconv.Itoa(i))
					h.Name = strconv.Itoa(i % 7)
					answer, err := processes[i%2].Acquire(t.Context(), h)
					require.NoError(t, err)
					require.Greater(t, answer.Token, last[h.Name])
					last[h.Name] = answer.Token
					pass(time.Millisecond) // the nodes that answer late are done, too
					if raised.Load() > before {
						grants++
					}
					h.Count = 0
					_, err = processes[i%2].Release(t.Context(), h)
					require.NoError(t, err)
					pass(time.Duration(random.Int64N(int64(time.Second))))
				}
				assert.GreaterOrEqual(t, grants, c.least)
				assert.LessOrEqual(t, grants, c.most)
			})
		})
	}
}

// A node whose counter is damaged does not damage the others': it has no vote.
func TestDamagedCounterDoesNotSpread(t *testing.T) {
	for _, damaged := range []int64{1<<53 - 17, math.MaxInt64 - 1, math.MinInt64} {
		synctest.Test(t, func(t *testing.T) {
			all, stores := booths(5)
			store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
			all[0].counters["a"], all[0].damaged = damaged, true
			var last int64
			for i := range 20 {
				h := hold("me:" + strconv.Itoa(i))
				answer, err := store.Acquire(t.Context(), h)
				require.NoError(t, err)
				require.Greater(t, answer.Token, last)
				last = answer.Token
				require.Less(t, last, time.Now().Add(time.Second).UnixMicro())
				h.Count = 0
				_, err = store.Release(t.Context(), h)
				require.NoError(t, err)
				pass(time.Second)
				require.Zero(t, holders(all, "a"))
			}
			for _, b := range all[1:] {
				require.LessOrEqual(t, b.counters["a"], last)
			}
		})
	}
}

// Contenders for one name do not drive each other's proposals ahead of the clocks.
func TestProposalsStayNearTheClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(5)
		for i, b := range all {
			random := rand.New(rand.NewPCG(3, uint64(i)))
			b.set(func(string, *driver.Hold) mishap {
				return mishap{there: time.Duration(random.Int64N(int64(time.Millisecond))), back: time.Duration(random.Int64N(int64(time.Millisecond)))}
			})
		}
		var work sync.WaitGroup
		var grants atomic.Int64
		for range 4 {
			l := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{})
			work.Go(func() {
				for range 50 {
					lease, err := l.Mutex("a").Lock(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					ahead := lease.Token() - time.Now().UnixMicro()
					assert.Less(t, ahead, (20 * time.Millisecond).Microseconds())
					assert.NoError(t, lease.Unlock(t.Context()))
					grants.Add(1)
				}
			})
		}
		work.Wait()
		require.EqualValues(t, 200, grants.Load())
	})
}

// A node that restarted empty receives the lease's token, also if the first request for that is lost.
func TestRestoredNodeReceivesTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		all[0].skew = time.Hour
		all[1].set(func(string, *driver.Hold) mishap { return mishap{back: time.Millisecond} })
		l := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{TTL: ttl})
		lease, err := l.Mutex("a").Lock(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		all[2].lose()
		lost := false
		all[2].set(func(request string, _ *driver.Hold) mishap {
			if request == "fence" && !lost {
				lost = true
				return mishap{lost: true}
			}
			return mishap{}
		})
		pass(2 * ttl)
		require.True(t, lost)
		all[2].mu.Lock()
		assert.Equal(t, lease.Token(), all[2].counters["a"])
		all[2].mu.Unlock()
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

// A token that a majority refuses to raise for good ends the acquisition: Lock does not wait for that
// to change.
func TestLastingFailureToRaiseATokenIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		all[0].skew = time.Hour
		for _, b := range all[1:] {
			b.set(func(request string, _ *driver.Hold) mishap {
				if request == "fence" {
					return mishap{err: errBroken}
				}
				return mishap{back: time.Millisecond}
			})
		}
		l := locker(t, over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...), lock.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := l.Mutex("a").Lock(ctx)
		require.ErrorIs(t, err, errBroken)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.NotErrorIs(t, err, driver.ErrNotDone, "nodes had granted the lock")
		require.NoError(t, ctx.Err(), "Lock waited")
		synctest.Wait()
		require.Zero(t, holders(all, "a"))
	})
}

// A node that grants the lock and then does not raise its token costs no time if another one grants
// it, too.
func TestLossyNodeDelaysNoToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		all[0].skew = time.Hour
		all[0].set(func(request string, _ *driver.Hold) mishap {
			assert.NotEqual(t, "fence", request, "the node has the token")
			return mishap{}
		})
		all[1].set(func(request string, _ *driver.Hold) mishap { return mishap{lost: request == "fence"} })
		all[2].set(func(string, *driver.Hold) mishap { return mishap{back: time.Millisecond} })
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		begin := time.Now()
		_, err := store.Acquire(t.Context(), hold("me:1"))
		require.NoError(t, err)
		require.Equal(t, 2*time.Millisecond, time.Since(begin))
	})
}

// unraised is a store that is no [driver.Fencer].
type unraised struct{ driver.Store }

// Beside a store whose token cannot be raised, no token is.
func TestStoreWhoseTokenCannotBeRaised(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, stores := booths(3)
		all[0].skew = time.Minute
		stores[2] = unraised{stores[2]}
		behave(all, []behaviour{grants, out, grants})
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout}, stores...)
		answer, err := store.Acquire(t.Context(), hold("me:1"))
		require.NoError(t, err)
		require.Equal(t, all[0].counters["a"], answer.Token)
	})
}

// A majority of nodes that give no tokens would give the token 0 after larger ones, so they are refused
// beside others.
func TestNodesWithoutTokensAreRefusedBesideOthers(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true}) // sends nothing
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	open := func(c redisstore.Config) driver.Store {
		store, err := redisstore.New(client, c)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		return store
	}
	memory := func() driver.Store { return memstore.New() }
	without := func() driver.Store { return open(redisstore.Config{Format: redisstore.FormatPlain}) }
	with := func() driver.Store { return open(redisstore.Config{Format: redisstore.FormatPlain, PlainTokens: true}) }
	redisson := func() driver.Store { return open(redisstore.Config{}) }
	for name, c := range map[string]struct {
		nodes   []driver.Store
		refused string
	}{
		"beside memory":     {[]driver.Store{memory(), without(), without()}, "stores [1 2] give no fencing tokens"},
		"beside another":    {[]driver.Store{with(), with(), without()}, "stores [2] give no fencing tokens"},
		"beside Redisson's": {[]driver.Store{without(), redisson(), redisson()}, "stores [0] give no fencing tokens"},
		"alone":             {[]driver.Store{without(), without(), without()}, ""},
		"plain with tokens": {[]driver.Store{with(), memory(), redisson()}, ""},
	} {
		for _, loose := range []bool{false, true} {
			store, err := quorum.New(c.nodes, quorum.Config{LooseTokens: loose})
			if c.refused != "" && !loose {
				require.ErrorContains(t, err, c.refused, name)
				continue
			}
			require.NoError(t, err, name)
			require.NoError(t, store.Close())
		}
	}
}
