//go:build real && linux

package pgstore_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/chaos"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

var (
	benchTime = flag.Duration("time", time.Minute, "how long TestFaultBench draws faults")
	benchSeed = flag.Uint64("seed", 1, "seed of TestFaultBench; 0 means a new one")
)

const (
	// benchTTL is that of the bench's locks. Uses that outlast it depend on renewals.
	benchTTL = 2 * time.Second
	// benchLimit is how long a worker may wait for a lock after a fault.
	benchLimit = time.Minute
	// benchConns is the size of a pool.
	benchConns = 4
	// benchPermits is how many permits there are.
	benchPermits = 2
)

// bench has workers use locks on a pair of servers with faults.
type bench struct {
	*testing.T
	*pair
	client []*client

	worker  []*atomic.Int64 // how often each one was granted a lock
	stopped chan struct{}   // closed when the workers are to end
	end     func()          // ends them

	mu    sync.Mutex
	uses  []chaos.Use // guarded by mu
	latch int         // guarded by mu; one whose count is not known is not used further

	renewed, lost, failed atomic.Int64 // uses of more than a TTL; leases; acquisitions that may fail
}

// client is a store with its pool and network.
type client struct {
	pool    *pgxpool.Pool
	network redistest.Late
}

// faults are what happens to servers and clients. Each returns what ends it.
var faults = []struct {
	name  string
	begin func(b *bench, d *rand.Rand) (end func())
}{
	{"the primary is killed", func(b *bench, _ *rand.Rand) func() {
		b.primary.Kill()
		return b.restart(b.primary)
	}},
	{"the primary is shut down at once", func(b *bench, _ *rand.Rand) func() {
		b.primary.SignalAll(syscall.SIGQUIT)
		return b.restart(b.primary)
	}},
	{"the primary is shut down", func(b *bench, _ *rand.Rand) func() {
		b.primary.Signal(syscall.SIGINT)
		return b.restart(b.primary)
	}},
	{"the primary is stopped", func(b *bench, _ *rand.Rand) func() {
		b.primary.SignalAll(syscall.SIGSTOP)
		return func() { b.primary.SignalAll(syscall.SIGCONT) }
	}},
	{"the replica is killed", func(b *bench, _ *rand.Rand) func() {
		b.replica.Kill()
		return b.restart(b.replica)
	}},
	{"the replica is stopped", func(b *bench, _ *rand.Rand) func() {
		b.replica.SignalAll(syscall.SIGSTOP)
		return func() { b.replica.SignalAll(syscall.SIGCONT) }
	}},
	{"the replica is promoted", func(b *bench, _ *rand.Rand) func() {
		b.promote(b)
		return func() { require.NoError(b, b.replica.Follow(b.primary)) }
	}},
	{"a replica is promoted that was missing", func(b *bench, _ *rand.Rand) func() {
		b.replica.Kill()
		time.Sleep(benchTTL) // requests are given up, and committed
		b.primary.Kill()
		require.NoError(b, b.replica.Restart())
		b.promote(b)
		return func() { require.NoError(b, b.replica.Follow(b.primary)) }
	}},
	{"connections are cut", func(b *bench, _ *rand.Rand) func() {
		ctx, end := context.WithCancel(context.Background())
		var cutting sync.WaitGroup
		cutting.Go(func() {
			for ctx.Err() == nil {
				if conn, err := pgx.Connect(ctx, b.primary.URL()); err == nil {
					_, _ = conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'bench' AND random() < 0.3")
					_ = conn.Close(ctx)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
		return func() {
			end()
			cutting.Wait()
		}
	}},
	{"a pool is exhausted", func(b *bench, d *rand.Rand) func() {
		pool := b.client[d.IntN(len(b.client))].pool
		var taken []*pgxpool.Conn
		for range benchConns {
			ctx, cancel := context.WithTimeout(context.Background(), benchLimit)
			conn, err := pool.Acquire(ctx)
			cancel()
			require.NoError(b, err)
			taken = append(taken, conn)
		}
		return func() {
			for _, conn := range taken {
				conn.Release()
			}
		}
	}},
	{"a client's requests arrive late", func(b *bench, d *rand.Rand) func() {
		network := &b.client[d.IntN(len(b.client))].network
		network.Hold(true)
		return func() {
			network.Hold(false)
			network.Deliver()
		}
	}},
}

func (b *bench) restart(s *pgtest.Server) (end func()) {
	return func() { require.NoError(b, s.Restart()) }
}

// TestFaultBench draws faults for so long. After each one every worker is granted a lock. In the end
// all uses are checked.
func TestFaultBench(t *testing.T) {
	seed := *benchSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("repeat with -seed %d", seed)
	d := rand.New(rand.NewPCG(seed, 0))
	b := startBench(t, seed)
	b.progress("intact")
	count := make([]int, len(faults))
	rounds := 0
	var order []int
	for begin := time.Now(); time.Since(begin) < *benchTime; rounds++ {
		if len(order) == 0 {
			order = d.Perm(len(faults))
		}
		i := order[0]
		order = order[1:]
		count[i]++
		end := faults[i].begin(b, d)
		time.Sleep(time.Duration(d.Int64N(int64(2 * benchTTL))))
		end()
		b.progress(faults[i].name)
	}
	b.end()
	for i, f := range faults {
		t.Logf("%3d times %s", count[i], f.name)
	}
	checked := chaos.Check(t, b.uses)
	t.Logf("seed %d: %d faults, %d grants, %d of more than a TTL, %d leases lost, %d acquisitions failed, %d checks",
		seed, rounds, len(b.uses), b.renewed.Load(), b.lost.Load(), b.failed.Load(), checked)
}

func startBench(t *testing.T, seed uint64) *bench {
	b := &bench{T: t, pair: startPair(t, "bench", synchronous), stopped: make(chan struct{})}
	var work sync.WaitGroup
	var lockers []*lock.Locker
	for range 4 {
		c := new(client)
		c.pool = b.primary.Pool(t, b.reach(t), over(c.network.Over), func(config *pgxpool.Config) {
			config.MaxConns = benchConns
			config.ConnConfig.RuntimeParams["application_name"] = "bench"
		})
		t.Cleanup(c.network.Close)
		store, err := pgstore.New(c.pool, pgstore.Config{Schema: "bench"})
		require.NoError(t, err)
		l, err := lock.New(store, lock.Config{TTL: benchTTL})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, store.Close()) })
		_, err = l.Permits("p").TrySetPermits(t.Context(), benchPermits)
		require.NoError(t, err)
		lockers = append(lockers, l)
		b.client = append(b.client, c)
		for range 4 {
			done := new(atomic.Int64)
			b.worker = append(b.worker, done)
			d := rand.New(rand.NewPCG(seed, uint64(len(b.worker))))
			work.Go(func() { b.work(l, d, done) })
		}
	}
	b.end = sync.OnceFunc(func() {
		close(b.stopped)
		ended := make(chan struct{})
		go func() {
			work.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-time.After(benchLimit):
			t.Error("a worker waits for a lock a minute after the others have ended")
		}
		for _, l := range lockers {
			assert.NoError(t, l.Close())
		}
		<-ended
	})
	t.Cleanup(b.end)
	return b
}

// progress waits until each worker was granted a lock.
func (b *bench) progress(when string) {
	begin, before := time.Now(), make([]int64, len(b.worker))
	for i, done := range b.worker {
		before[i] = done.Load()
	}
	for i, done := range b.worker {
		for done.Load() == before[i] {
			if time.Since(begin) > benchLimit {
				b.Fatalf("%s, and it is over: worker %d was granted no lock in a minute", when, i)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	b.Logf("%s: %v", when, time.Since(begin).Round(time.Millisecond))
}

// work uses locks until the bench ends.
func (b *bench) work(l *lock.Locker, d *rand.Rand, done *atomic.Int64) {
	for {
		select {
		case <-b.stopped:
			return
		default:
		}
		var granted bool
		if d.IntN(10) == 0 {
			granted = b.useLatch(l, d)
		} else {
			granted = b.useLock(l, d)
		}
		if granted {
			done.Add(1)
		}
	}
}

// useLock uses a lock of a kind drawn at random.
func (b *bench) useLock(l *lock.Locker, d *rand.Rand) (granted bool) {
	u := chaos.Use{Name: fmt.Sprint("m", d.IntN(2))}
	m := l.Mutex(u.Name)
	switch d.IntN(6) {
	case 0:
		u.Kind, u.Name = driver.KindFair, "f"
		m = l.Fair(u.Name)
	case 1:
		u.Kind, u.Name = driver.KindRead, "rw"
		m = l.ReadWrite(u.Name).Read()
	case 2:
		u.Kind, u.Name = driver.KindWrite, "rw"
		m = l.ReadWrite(u.Name).Write()
	case 3:
		u.Kind, u.Name, u.Count = driver.KindPermit, "p", benchPermits
		m = l.Permits(u.Name).One()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	mayFail := d.IntN(2) == 0
	if mayFail {
		limit := time.Duration(d.Int64N(int64(benchTTL)))
		if d.IntN(2) == 0 {
			m = m.MaxWait(limit)
		} else {
			defer time.AfterFunc(limit, cancel).Stop()
		}
	}
	u.Called = time.Now()
	lease, err := m.Lock(ctx)
	if errors.Is(err, lock.ErrLost) { // the lease has ended while its grant was on the way to this goroutine
		b.lost.Add(1)
		return false
	}
	if err != nil {
		if b.failed.Add(1); !mayFail {
			b.Errorf("Lock: %v", err)
		}
		return false
	}
	u.Granted, u.Valid, u.Token, u.Owner = time.Now(), u.Called, lease.Token(), lease.Owner()
	if u.Count == 0 && d.IntN(6) == 0 { // a further hold; permits have none
		if inner, err := m.TryLock(lease.Context()); err == nil {
			defer func() { _ = inner.Unlock(context.Background()) }()
		}
	}
	held := 20 * time.Millisecond
	if d.IntN(20) == 0 {
		held = 3 * benchTTL
	}
	for end := u.Granted.Add(time.Duration(d.Int64N(int64(held)))); ; time.Sleep(2 * time.Millisecond) {
		now := time.Now()
		if !lease.Valid() {
			b.lost.Add(1)
			break
		}
		if u.Valid = now; now.After(end) {
			break
		}
	}
	if u.Valid.Sub(u.Granted) > benchTTL {
		b.renewed.Add(1)
	}
	b.record(u)
	_ = lease.Unlock(context.Background())
	return true
}

func (b *bench) record(u chaos.Use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses = append(b.uses, u)
}

// useLatch closes a latch and opens it again, or waits for it.
func (b *bench) useLatch(l *lock.Locker, d *rand.Rand) (granted bool) {
	b.mu.Lock()
	number := b.latch
	b.mu.Unlock()
	u := chaos.Use{Kind: driver.KindLatch, Name: fmt.Sprint("l", number), Called: time.Now()}
	latch := l.Latch(u.Name)
	if d.IntN(3) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), benchTTL)
		defer cancel()
		if latch.Wait(ctx) != nil {
			b.failed.Add(1)
			return false
		}
		u.Granted = time.Now()
		u.Valid = u.Granted
		b.record(u)
		return true
	}
	u.Count = 1
	set, err := latch.TrySetCount(context.Background(), u.Count)
	if err == nil && !set {
		return false
	}
	if u.Granted, u.Valid = time.Now(), time.Now(); err == nil {
		time.Sleep(time.Duration(d.Int64N(int64(100 * time.Millisecond))))
		u.Valid = time.Now()
		if err = latch.CountDown(context.Background()); err == nil {
			u.Released = time.Now()
		}
	}
	b.record(u)
	if err != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.failed.Add(1)
		b.latch = max(b.latch, number+1)
	}
	return err == nil
}
