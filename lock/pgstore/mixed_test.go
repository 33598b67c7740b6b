package pgstore_test

import (
	"context"
	"slices"
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
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/quorum"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// onRedis returns a store on a server, which ends with t.
func onRedis(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// majority returns the store of some nodes, which ends with t.
func majority(t testing.TB, c quorum.Config, nodes ...driver.Store) *quorum.Store {
	t.Helper()
	s, err := quorum.New(nodes, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// fleet moves from one server to another while it works.
type fleet struct {
	names []string

	mu       sync.Mutex
	holders  map[string]int   // guarded by mu
	tokens   map[string]int64 // guarded by mu; the last one of each name
	overlaps int              // guarded by mu
	grants   int              // guarded by mu
	last     time.Time        // guarded by mu; of the last grant
	pause    time.Duration    // guarded by mu; the longest time without a grant
	by       map[*process]int // guarded by mu
	all      chan struct{}    // guarded by mu; closed once each process was granted some locks
	wrong    []string         // guarded by mu
}

// process is one locker with its store, whose goroutines lock and unlock until it is replaced.
type process struct {
	locker *lock.Locker
	store  driver.Store
	stop   atomic.Bool
	work   sync.WaitGroup
}

// enough is how many grants a process has in a step before it rests until each other one has some. Beside
// waiters of one server, a quorum of both is granted a lock by chance alone: it has no place in their queue.
const enough = 500

// granted records a grant. It returns a channel to wait for if the process is to rest afterwards.
func (f *fleet) granted(p *process, lease *lock.Lease) (rest <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := lease.Name()
	if f.holders[name]++; f.holders[name] > 1 {
		f.overlaps++
	}
	if lease.Token() <= f.tokens[name] {
		f.wrong = append(f.wrong, "a token did not grow")
	}
	f.tokens[name] = lease.Token()
	now := time.Now()
	if f.grants++; f.grants > 1 {
		f.pause = max(f.pause, now.Sub(f.last))
	}
	f.last = now
	if f.by[p]++; f.by[p] >= enough {
		rest = f.all
	}
	return rest
}

func (f *fleet) done(lease *lock.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holders[lease.Name()]--
}

// start starts a process.
func (f *fleet) start(t *testing.T, store driver.Store) *process {
	locker, err := lock.New(store, lock.Config{TTL: 10 * time.Minute, RequestTimeout: time.Minute})
	require.NoError(t, err)
	p := &process{locker: locker, store: store}
	for i := range 4 {
		p.work.Go(func() {
			for n := i; !p.stop.Load(); n++ {
				lease, err := locker.Mutex(f.names[n%len(f.names)]).Lock(context.Background())
				if !assert.NoError(t, err) {
					return
				}
				rest := f.granted(p, lease)
				assert.NoError(t, lease.Err())
				f.done(lease)
				if !assert.NoError(t, lease.Unlock(context.Background())) {
					return
				}
				if rest != nil {
					<-rest
				}
			}
		})
	}
	return p
}

// end ends a process in good order.
func (p *process) end(t *testing.T) {
	p.stop.Store(true)
	p.work.Wait()
	assert.NoError(t, p.locker.Close())
	assert.NoError(t, p.store.Close())
}

// await waits until each process was granted some more locks, as long as there are grants at all.
func (f *fleet) await(t *testing.T, fleet []*process, grants int) {
	all := make(chan struct{})
	defer close(all)
	f.mu.Lock()
	clear(f.by)
	f.all = all
	seen := f.grants
	f.mu.Unlock()
	for lack := true; lack; {
		require.Eventually(t, func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			before := seen
			seen, lack = f.grants, slices.ContainsFunc(fleet, func(p *process) bool { return f.by[p] < grants })
			return !lack || seen > before
		}, time.Minute, time.Millisecond, "no process is granted anything")
	}
}

// A fleet moves from Redis to PostgreSQL under load, one process after the other, through a quorum of both.
// docs/operating.md describes the steps.
func TestMoveFromRedis(t *testing.T) {
	t.Parallel()
	migrate(t, server(t), "moved")
	redisServer := redistest.Start(t, redistest.Config{})
	old := func() driver.Store { return onRedis(t, redisServer.Client(t)) }
	both := func() driver.Store {
		return majority(t, quorum.Config{Move: true, NodeTimeout: time.Minute}, old(), next(t))
	}
	f := &fleet{names: []string{"a", "b", "c"}, holders: map[string]int{}, tokens: map[string]int64{}, by: map[*process]int{}}
	processes := make([]*process, 4)
	end := sync.OnceFunc(func() {
		begun := slices.DeleteFunc(processes, func(p *process) bool { return p == nil })
		for _, p := range begun { // those that wait are granted what others release
			p.stop.Store(true)
		}
		for _, p := range begun {
			p.end(t)
		}
	})
	defer end()
	for i, step := range []struct {
		name string
		open func() driver.Store
	}{{"Redis", old}, {"both", both}, {"PostgreSQL", func() driver.Store { return next(t) }}} {
		for j := range processes {
			if i > 0 {
				processes[j].end(t)
			}
			processes[j] = f.start(t, step.open())
			if i == 0 && j < len(processes)-1 {
				continue
			}
			f.await(t, processes, 5)
		}
		f.mu.Lock()
		t.Logf("on %s: %d grants so far, the longest pause %v", step.name, f.grants, f.pause)
		f.pause = 0
		f.mu.Unlock()
	}
	end()
	assert.Zero(t, f.overlaps)
	assert.Empty(t, f.wrong)
	t.Logf("%d grants, %d overlaps", f.grants, f.overlaps)
}

func next(t *testing.T) driver.Store { return open(t, server(t), pgstore.Config{Schema: "moved"}) }
