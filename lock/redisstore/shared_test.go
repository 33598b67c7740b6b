package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// outcomes are what the requests of one batch returned, by the name of the lock.
type outcomes struct {
	mu      sync.Mutex
	answers map[string][]driver.Answer
	held    map[string][]bool
	errs    map[string][]error
}

// inOneBatch acquires or releases holds in one batch.
func inOneBatch(t *testing.T, store *redisstore.Store, admin *redis.Client, acquire bool, holds []*driver.Hold, proposals map[*driver.Hold]int64) *outcomes {
	t.Helper()
	got := &outcomes{answers: map[string][]driver.Answer{}, held: map[string][]bool{}, errs: map[string][]error{}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // unbounded requests share no run
	defer cancel()
	requests := make([]func(), len(holds))
	for i, h := range holds {
		requests[i] = func() {
			var a driver.Answer
			var held bool
			var err error
			if acquire {
				a, _, err = store.AcquireProposing(ctx, h, proposals[h])
			} else {
				held, err = store.Release(ctx, h)
			}
			got.mu.Lock()
			defer got.mu.Unlock()
			switch {
			case err != nil:
				got.errs[h.Name] = append(got.errs[h.Name], err)
			case acquire:
				got.answers[h.Name] = append(got.answers[h.Name], a)
			default:
				got.held[h.Name] = append(got.held[h.Name], held)
			}
		}
	}
	together(t, store, admin, requests)
	return got
}

// runs returns how many scripts the server has run, but for those that fill the pipes.
func runs(t *testing.T, admin *redis.Client, during func()) int64 {
	t.Helper()
	before := scripts(t, admin)
	during()
	return scripts(t, admin) - before - redisstore.MaxInFlight
}

// The simple requests of a batch share a run of their script. Each has the outcome that it
// would have alone: on free locks, on held ones, on keys of other programs, and two on one
// lock.
func TestSimpleRequestsShareARun(t *testing.T) {
	t.Parallel()
	for _, format := range []redisstore.Format{redisstore.FormatRedisson, redisstore.FormatPlain} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v others=%v", format, others), func(t *testing.T) {
				t.Parallel()
				server, admin := startServer(t)
				store := openWith(t, server.Client(t), redisstore.Config{Format: format})
				_, err := store.Acquire(t.Context(), mutexOf("held", 100))
				require.NoError(t, err)
				_, err = store.Release(t.Context(), released(mutexOf("nothing", 1))) // the scripts are known
				require.NoError(t, err)
				require.NoError(t, admin.LPush(t.Context(), "foreign", "x").Err())

				var holds []*driver.Hold
				for n := range 10 {
					holds = append(holds, mutexOf(fmt.Sprintf("free %d", n), n))
				}
				proposals := map[*driver.Hold]int64{}
				apart := int64(2)  // two of the three for one lock
				for n := range 3 { // each proposes a larger token than the one before
					h := mutexOf("twice", 20+n)
					proposals[h] = (time.Now().Add(900*time.Millisecond).UnixMicro() + int64(n)*1000) &^ 15
					holds = append(holds, h)
				}
				if others {
					apart += 3
					holds = append(holds, mutexOf("held", 23), mutexOf("held", 100), mutexOf("foreign", 24))
				}
				var got *outcomes
				assert.Equal(t, 1+apart, runs(t, admin, func() { got = inOneBatch(t, store, admin, true, holds, proposals) }))
				require.Empty(t, got.errs)
				tokens := format == redisstore.FormatRedisson
				for n := range 10 {
					answers := got.answers[fmt.Sprintf("free %d", n)]
					require.Len(t, answers, 1)
					assert.Equal(t, driver.Granted, answers[0].Verdict)
					assert.Equal(t, tokens, answers[0].Token > 0)
					assert.Positive(t, admin.PTTL(t.Context(), fmt.Sprintf("free %d", n)).Val())
				}
				verdicts := map[driver.Verdict]int{}
				for _, a := range got.answers["twice"] {
					verdicts[a.Verdict]++
				}
				assert.Equal(t, map[driver.Verdict]int{driver.Granted: 1, driver.Refused: 2}, verdicts)
				if others {
					verdicts = map[driver.Verdict]int{}
					for _, a := range got.answers["held"] {
						verdicts[a.Verdict]++
					}
					assert.Equal(t, map[driver.Verdict]int{driver.Granted: 1, driver.Refused: 1}, verdicts, "its owner has it still")
					assert.True(t, got.answers["foreign"][0].Foreign)
				}

				channel := admin.Subscribe(t.Context(), "redisson_lock__channel:{free 3}")
				t.Cleanup(func() { assert.NoError(t, channel.Close()) })
				_, err = channel.Receive(t.Context())
				require.NoError(t, err)
				holds = nil
				for n := range 10 {
					holds = append(holds, released(mutexOf(fmt.Sprintf("free %d", n), n)))
				}
				holds = append(holds, released(mutexOf("free 0", 50)), released(mutexOf("nothing", 51)), released(mutexOf("foreign", 52)))
				assert.EqualValues(t, 1, runs(t, admin, func() { got = inOneBatch(t, store, admin, false, holds, nil) }))
				require.Empty(t, got.errs)
				for n := 1; n < 10; n++ {
					assert.Equal(t, []bool{true}, got.held[fmt.Sprintf("free %d", n)])
					assert.Zero(t, admin.Exists(t.Context(), fmt.Sprintf("free %d", n)).Val())
				}
				assert.ElementsMatch(t, []bool{true, false}, got.held["free 0"])
				assert.Equal(t, []bool{false}, got.held["nothing"])
				assert.Equal(t, []bool{false}, got.held["foreign"])
				assert.EqualValues(t, 1, admin.Exists(t.Context(), "held", "foreign").Val()-1, "what others have stays")
				message, err := channel.ReceiveMessage(t.Context())
				require.NoError(t, err)
				assert.Equal(t, "0", message.Payload)
			})
		}
	}
}

// A lock whose waiters have a wait queue goes to the first of them, although its release
// came with those of locks without waiters.
func TestSharedReleaseHandsOver(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	for n := range 5 {
		_, err := store.Acquire(t.Context(), mutexOf(fmt.Sprint("lock ", n), n))
		require.NoError(t, err)
	}
	waiter := mutexOf("lock 2", 100)
	waiter.Queue = inQueue(time.Minute)
	subscribe(t, store, waiter, func(driver.Notice) {})
	refused, err := store.Acquire(t.Context(), waiter)
	require.NoError(t, err)
	require.Equal(t, driver.Refused, refused.Verdict)

	var holds []*driver.Hold
	for n := range 5 {
		holds = append(holds, released(mutexOf(fmt.Sprint("lock ", n), n)))
	}
	got := inOneBatch(t, store, admin, false, holds, nil)
	require.Empty(t, got.errs)
	for n := range 5 {
		assert.Equal(t, []bool{true}, got.held[fmt.Sprint("lock ", n)])
	}
	assert.Equal(t, map[string]string{owner(100): "1"}, admin.HGetAll(t.Context(), "lock 2").Val())
	assert.EqualValues(t, 1, admin.Exists(t.Context(), "lock 0", "lock 1", "lock 2", "lock 3", "lock 4").Val())
}

// Releases that share a run count as hand-overs where waiters of ours are subscribed, so
// that a plain lock is left to peers now and then.
func TestSharedReleaseOfPlainLocksCountsHandOvers(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := openWith(t, server.Client(t), redisstore.Config{Format: redisstore.FormatPlain})
	var holds []*driver.Hold
	for n := range 3 {
		_, err := store.Acquire(t.Context(), mutexOf(fmt.Sprint("lock ", n), n))
		require.NoError(t, err)
		holds = append(holds, released(mutexOf(fmt.Sprint("lock ", n), n)))
	}
	subscribe(t, store, mutexOf("lock 1", 100), func(driver.Notice) {})
	got := inOneBatch(t, store, admin, false, holds, nil)
	require.Empty(t, got.errs)
	state := func(n int) bool {
		return admin.HExists(t.Context(), fmt.Sprintf("leasewheel_lock_turns:{lock %d}", n), "since").Val()
	}
	assert.Equal(t, []bool{false, true, false}, []bool{state(0), state(1), state(2)})
}

// What fails one request of a shared run fails no other: a counter that is damaged or of
// another type, a name or a channel without rights. Counters that Redisson uses go on by
// one.
func TestOneRequestOfASharedRunFailsAlone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"ada on >pw +@all ~* &*"}})
	admin := server.Client(t)
	store := open(t, loginAs(t, server, "ada", "pw"))
	_, err := store.Release(t.Context(), released(mutexOf("nothing", 0)))
	require.NoError(t, err)
	counter := func(name string) string { return "redisson_lock_token:{" + name + "}" }
	require.NoError(t, admin.Set(t.Context(), counter("damaged"), "x", 0).Err())
	require.NoError(t, admin.LPush(t.Context(), counter("list"), "x").Err())
	require.NoError(t, admin.Set(t.Context(), counter("redisson"), "41", 0).Err())
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "ada", "resetkeys", "resetchannels", "~good*", "~*{good*", "~*{damaged}",
		"~before", "~*{before}", "~damaged", "~list", "~*{list}", "~redisson", "~*{redisson}", "~mute", "~*{mute}", "&*{before*", "&*{good*", "&*{damaged*", "&*{list*", "&*{redisson*").Err())
	ask := func(acquire bool, names ...string) *outcomes {
		var holds []*driver.Hold
		for i, name := range append(names, "good 0", "good 1", "good 2") {
			if acquire {
				holds = append(holds, mutexOf(name, i))
			} else {
				holds = append(holds, released(mutexOf(name, i)))
			}
		}
		return inOneBatch(t, store, admin, acquire, holds, nil)
	}
	all := func(got *outcomes) {
		t.Helper()
		for n := range 3 {
			name := fmt.Sprint("good ", n)
			require.Empty(t, got.errs[name])
			if answers := got.answers[name]; answers != nil {
				assert.Equal(t, driver.Granted, answers[0].Verdict)
			} else {
				assert.Equal(t, []bool{true}, got.held[name])
			}
		}
	}

	got := ask(true, "damaged", "list", "redisson", "mute")
	all(got)
	require.Len(t, got.errs["damaged"], 1)
	require.ErrorIs(t, got.errs["damaged"][0], redisstore.ErrDamaged)
	require.Len(t, got.errs["list"], 1)
	require.ErrorIs(t, got.errs["list"][0], redisstore.ErrWrongType)
	assert.Equal(t, "x", admin.Get(t.Context(), counter("damaged")).Val())
	assert.Zero(t, admin.Exists(t.Context(), "damaged", "list").Val())
	require.Len(t, got.answers["redisson"], 1)
	assert.Greater(t, got.answers["redisson"][0].Token, int64(41))
	require.Len(t, got.answers["mute"], 1)

	got = ask(false, "damaged", "list", "redisson", "mute")
	all(got)
	assert.Equal(t, []bool{false}, got.held["damaged"])
	assert.Equal(t, []bool{true}, got.held["redisson"])
	require.Len(t, got.errs["mute"], 1)
	require.ErrorIs(t, got.errs["mute"][0], redisstore.ErrNoPermission)
	require.NotErrorIs(t, got.errs["mute"][0], driver.ErrNotDone, "it was freed, but not published")

	for _, acquire := range []bool{true, false} {
		got = ask(acquire, "forbidden")
		all(got)
		require.Len(t, got.errs["forbidden"], 1)
		require.ErrorIs(t, got.errs["forbidden"][0], redisstore.ErrNoPermission)
	}
	assert.EqualValues(t, 1, runs(t, admin, func() { all(ask(true)) }), "and runs are shared still")
}

// A server that wants all keys of a run in one slot gets no shared runs after the first.
func TestServerWithSlotsGetsNoSharedRuns(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{TCP: true, Directives: []string{"cluster-enabled yes"}})
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(admin.ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, time.Minute, 5*time.Millisecond)
	store := open(t, server.Client(t))
	const goroutines = 100
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var work sync.WaitGroup
	for g := range goroutines {
		work.Go(func() {
			for range 3 {
				a, err := store.Acquire(ctx, mutexOf(fmt.Sprint("lock ", g), g))
				assert.NoError(t, err)
				assert.Equal(t, driver.Granted, a.Verdict)
				held, err := store.Release(ctx, released(mutexOf(fmt.Sprint("lock ", g), g)))
				assert.NoError(t, err)
				assert.True(t, held)
			}
		})
	}
	work.Wait()
	_, refused, _ := strings.Cut(admin.Info(t.Context(), "errorstats").Val(), "errorstat_CROSSSLOT:count=")
	var times int
	_, err := fmt.Sscan(strings.SplitN(refused, "\r", 2)[0], &times)
	require.NoError(t, err, "none was refused")
	assert.LessOrEqual(t, times, 2*redisstore.MaxInFlight, "a batch has two of them at most")
}

// atFakeServer sends requests for three locks in one batch to a server that answers each
// script with reply, and returns how often the server was asked for each lock.
func atFakeServer(t *testing.T, reply func(locks []string) string, request func(ctx context.Context, store *redisstore.Store, n int)) (asked map[string]int) {
	t.Helper()
	unblock := make(chan struct{})
	var mu sync.Mutex
	asked = map[string]int{}
	address := fakeServer(t, func(command []string) string {
		switch verb := strings.ToLower(command[0]); {
		case verb != "evalsha" && verb != "eval":
			return fmt.Sprintf("-ERR unknown command '%s'\r\n", verb)
		case strings.HasPrefix(command[3], "before"):
			<-unblock
			return ":1\r\n"
		case command[2] == "1":
			return clockReply()
		}
		keys, err := strconv.Atoi(command[2])
		assert.NoError(t, err)
		locks := command[3 : 3+keys/4]
		mu.Lock()
		defer mu.Unlock()
		for _, lock := range locks {
			asked[lock]++
		}
		return reply(locks)
	})
	store := open(t, bareClient(t, address))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var work sync.WaitGroup
	for i := range redisstore.MaxInFlight {
		work.Go(func() {
			_, err := store.Release(ctx, released(mutexOf(fmt.Sprint("before ", i), i)))
			assert.NoError(t, err)
		})
		require.Eventually(t, func() bool { return store.InFlight() == i+1 }, time.Minute, 5*time.Millisecond)
	}
	for i := range 3 {
		work.Go(func() { request(ctx, store, i) })
	}
	require.Eventually(t, func() bool { return store.Waiting() == 3 }, time.Minute, 5*time.Millisecond)
	close(unblock)
	work.Wait()
	return asked
}

// The store repeats nothing after a reply that leaves the outcome open, such as that of a proxy
// without its server. A second release may find no hold because the first has freed the lock. A
// second acquisition may surely do nothing although the first was granted. The error says so,
// and the callers repeat.
func TestSharedRunOfUnknownOutcome(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reply   string
		passing bool
	}{
		"error":         {"-ERR upstream failure\r\n", true},
		"no code":       {"-upstream failure\r\n", true},
		"nil":           {"$-1\r\n", true},
		"nil array":     {"*-1\r\n", true},
		"array of nils": {"*3\r\n$-1\r\n$-1\r\n$-1\r\n", false},
		"too short":     {"*1\r\n:1\r\n", false},
		"number":        {":1\r\n", false},
	} {
		for _, acquire := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s acquire=%v", name, acquire), func(t *testing.T) {
				t.Parallel()
				asked := atFakeServer(t, func([]string) string { return test.reply }, func(ctx context.Context, store *redisstore.Store, n int) {
					h := mutexOf(fmt.Sprint("lock ", n), n)
					var err error
					if acquire {
						_, err = store.Acquire(ctx, h)
					} else {
						_, err = store.Release(ctx, released(h))
					}
					assert.Error(t, err)
					assert.NotErrorIs(t, err, driver.ErrNotDone)
					assert.Equal(t, test.passing, errors.Is(err, driver.ErrUnavailable))
				})
				assert.Equal(t, map[string]int{"lock 0": 1, "lock 1": 1, "lock 2": 1}, asked)
			})
		}
	}
}

// Where a shared run is the first that finds a replica, subscriptions of before may be on a former master.
func TestSharedRunOnAReplicaShowsTheDemotion(t *testing.T) {
	t.Parallel()
	refusal := bulk("READONLY You can't write against a read only replica.")
	atFakeServer(t, func(locks []string) string {
		return fmt.Sprintf("*%d\r\n", len(locks)) + strings.Repeat(refusal, len(locks))
	}, func(ctx context.Context, store *redisstore.Store, n int) {
		_, err := store.Acquire(ctx, mutexOf(fmt.Sprint("lock ", n), n))
		assert.ErrorIs(t, err, redisstore.ErrReadOnly)
		require.Eventually(t, func() bool { return store.Epoch() == 1 }, time.Minute, 10*time.Millisecond)
	})
}

// A server that refuses scripts for several locks, in words of its own, is one to the users of
// locks as any other.
func TestSharedRunsRefusedInOtherWords(t *testing.T) {
	t.Parallel()
	_, admin := startServer(t)
	var refused atomic.Int64
	store := open(t, bareClient(t, startProxy(t, func(command []string) (to *redis.Client, refusal string) {
		if strings.HasPrefix(command[0], "eval") && len(command[2]) > 1 { // ten keys and more
			refused.Add(1)
			return nil, "ERR 'EVALSHA' command keys must be in same slot"
		}
		return admin, ""
	})))
	l := lockerOn(t, store, lock.Config{})
	requests := make([]func(), 10)
	for n := range requests {
		requests[n] = func() {
			lease, err := l.Mutex(fmt.Sprint("lock ", n)).TryLock(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Unlock(t.Context()))
			}
		}
	}
	together(t, store, admin, requests)
	assert.Positive(t, refused.Load())
	for n := range requests {
		assert.Zero(t, admin.Exists(t.Context(), fmt.Sprint("lock ", n)).Val())
	}
}

// A shared run that arrives late counts as a try of each of its requests.
func TestLateSharedRunIsATry(t *testing.T) {
	t.Parallel()
	asked := atFakeServer(t, func([]string) string { return "*1\r\n$4\r\nlate\r\n" }, func(ctx context.Context, store *redisstore.Store, n int) {
		_, err := store.Acquire(ctx, mutexOf(fmt.Sprint("lock ", n), n))
		assert.ErrorIs(t, err, driver.ErrUnavailable)
		assert.ErrorContains(t, err, "arrived after its deadline")
	})
	assert.Equal(t, map[string]int{"lock 0": 3, "lock 1": 3, "lock 2": 3}, asked)
}

// learnScripts makes the scripts of mutexes known to the server.
func learnScripts(t *testing.T, store *redisstore.Store) {
	t.Helper()
	_, err := store.Acquire(t.Context(), mutexOf("known", 0))
	require.NoError(t, err)
	_, err = store.Release(t.Context(), released(mutexOf("known", 0)))
	require.NoError(t, err)
}

// A request of a shared run whose own deadline has passed is late, and no other one.
func TestLateRequestOfASharedRun(t *testing.T) {
	t.Parallel()
	const grant = "*3\r\n:1\r\n:16\r\n:0\r\n"
	asked := atFakeServer(t, func(locks []string) string {
		if len(locks) == 1 {
			return grant
		}
		var reply strings.Builder
		fmt.Fprintf(&reply, "*%d\r\n", len(locks))
		for _, lock := range locks {
			if lock == "lock 1" {
				reply.WriteString("$4\r\nlate\r\n")
			} else {
				reply.WriteString(grant)
			}
		}
		return reply.String()
	}, func(ctx context.Context, store *redisstore.Store, n int) {
		a, err := store.Acquire(ctx, mutexOf(fmt.Sprint("lock ", n), n))
		assert.NoError(t, err)
		assert.Equal(t, driver.Granted, a.Verdict)
	})
	assert.Equal(t, map[string]int{"lock 0": 1, "lock 1": 2, "lock 2": 1}, asked)
}

// A request without a deadline shares no run: it would have another request's.
func TestUnboundedRequestsShareNoRun(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	learnScripts(t, store)
	var requests []func()
	for n := range 5 {
		requests = append(requests, func() {
			a, err := store.Acquire(t.Context(), mutexOf(fmt.Sprint("lock ", n), n))
			assert.NoError(t, err)
			assert.Equal(t, driver.Granted, a.Verdict)
		})
	}
	assert.EqualValues(t, 5, runs(t, admin, func() { together(t, store, admin, requests) }))
}

// A grant that fails halfway, and is not undone, by rights that the user lacks, leaves its lock to no
// other owner of the same run.
func TestHalfAGrantIsNotFree(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"ada on >pw +@all ~* &* -pexpire -hdel (+hdel ~before ~nothing)"}})
	admin := server.Client(t)
	store := openWith(t, loginAs(t, server, "ada", "pw"), redisstore.Config{FenceTTL: -1})
	_, err := store.Release(t.Context(), released(mutexOf("nothing", 0)))
	require.NoError(t, err)
	var holds []*driver.Hold
	proposals := map[*driver.Hold]int64{}
	for n := range 5 { // each has a larger token than the one before
		h := mutexOf("lock", n)
		proposals[h] = (time.Now().Add(900*time.Millisecond).UnixMicro() + int64(n)*1000) &^ 15
		holds = append(holds, h)
	}
	got := inOneBatch(t, store, admin, true, holds, proposals)
	require.NotEmpty(t, got.errs["lock"])
	require.ErrorIs(t, got.errs["lock"][0], redisstore.ErrNoPermission)
	assert.EqualValues(t, 1, admin.HLen(t.Context(), "lock").Val(), "owners")
}

// A request of a batch finds a lock free that another one of the batch releases: it has
// the lock at once, or after its place in the wait queue.
func TestReleaseComesBeforeAcquisitions(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := open(t, server.Client(t))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := range 2 {
		_, err := store.Acquire(ctx, mutexOf(fmt.Sprint("lock ", n), n))
		require.NoError(t, err)
	}
	var requests []func()
	for n := range 2 {
		requests = append(requests, func() {
			h := mutexOf(fmt.Sprint("lock ", n), 100+n)
			if n == 1 {
				h.Queue = inQueue(time.Minute)
			}
			a, err := store.Acquire(ctx, h)
			assert.NoError(t, err)
			assert.Equal(t, driver.Granted, a.Verdict)
		}, func() {
			held, err := store.Release(ctx, released(mutexOf(fmt.Sprint("lock ", n), n)))
			assert.NoError(t, err)
			assert.True(t, held)
		})
	}
	together(t, store, admin, requests)
}

// A plain lock that is held is refused, and granted to its owner again, by a server that
// is out of memory: neither writes anything.
func TestHeldPlainLockOutOfMemory(t *testing.T) {
	t.Parallel()
	server, admin := startServer(t)
	store := openWith(t, server.Client(t), redisstore.Config{Format: redisstore.FormatPlain})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := store.Acquire(ctx, mutexOf("held", 1))
	require.NoError(t, err)
	require.NoError(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for _, n := range []int{1, 2} {
		a, err := store.Acquire(ctx, mutexOf("held", n))
		require.NoError(t, err)
		assert.Equal(t, n == 1, a.Verdict == driver.Granted)
	}
	_, err = store.Acquire(ctx, mutexOf("free", 1))
	require.ErrorIs(t, err, redisstore.ErrOutOfMemory)
	got := inOneBatch(t, store, admin, true, []*driver.Hold{mutexOf("held", 1), mutexOf("held", 2), mutexOf("free", 3)}, nil)
	require.Len(t, got.answers["held"], 2)
	assert.NotEqual(t, got.answers["held"][0].Verdict, got.answers["held"][1].Verdict)
	require.Len(t, got.errs["free"], 1)
	require.ErrorIs(t, got.errs["free"][0], redisstore.ErrOutOfMemory)
}
