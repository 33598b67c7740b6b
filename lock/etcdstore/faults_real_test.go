//go:build real && unix

package etcdstore

import (
	"context"
	"flag"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/chaos"
)

// members is how many members the cluster has.
const members = 3

// benchTTL is that of the bench's locks. Uses that outlast it twice depend on renewals.
const benchTTL = 2 * time.Second

// bench has clients use locks on a cluster with faults.
type bench struct {
	testing.TB
	*cluster
	peers  []*proxy   // in front of each member, for the others
	wires  [][]*proxy // in front of each member, for each store
	ids    []uint64   // of the members
	prefix string
	skew   atomic.Int64 // by which the stores' clocks are set
	stores []*Store

	lockers []*lock.Locker

	mu      sync.Mutex
	uses    []chaos.Use
	grants  atomic.Int64
	renewed atomic.Int64 // uses of more than two TTLs
	refused atomic.Int64 // losses, and requests that have failed
}

func startBench(t testing.TB, workers int) *bench {
	b := &bench{TB: t, prefix: "bench"}
	b.cluster = startCluster(t, swift, func(t testing.TB, _ int, address string) string {
		p := startProxy(t, address)
		b.peers = append(b.peers, p)
		return p.address()
	})
	for _, m := range b.members {
		status, err := m.dial(t).Status(context.Background(), "http://"+m.client)
		require.NoError(t, err)
		b.ids = append(b.ids, status.Header.MemberId)
	}
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for range workers {
		var addresses []string
		var wires []*proxy
		for _, m := range b.members {
			p := startProxy(t, m.client)
			wires, addresses = append(wires, p), append(addresses, p.address())
		}
		b.wires = append(b.wires, wires)
		s := openOn(t, dial(t, addresses, time.Second), b.prefix)
		s.now = func() time.Time { return time.Now().Add(time.Duration(b.skew.Load())) }
		l, err := lock.New(s, lock.Config{TTL: benchTTL})
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		b.stores, b.lockers = append(b.stores, s), append(b.lockers, l)
		for range 2 {
			work.Go(func() { b.work(ctx, l) })
		}
		work.Go(func() { b.workLong(ctx, l) })
	}
	t.Cleanup(func() {
		stop()
		work.Wait()
	})
	return b
}

// work uses locks drawn at random.
func (b *bench) work(ctx context.Context, l *lock.Locker) {
	for ctx.Err() == nil {
		u := chaos.Use{Name: "m" + strconv.Itoa(rand.IntN(2))}
		var m *lock.Mutex
		switch rand.IntN(4) {
		case 0:
			u.Kind, u.Name = driver.KindFair, "f"
			m = l.Fair(u.Name)
		case 1:
			u.Kind, u.Name = driver.KindRead, "rw"
			m = l.ReadWrite(u.Name).Read()
		case 2:
			u.Kind, u.Name = driver.KindWrite, "rw"
			m = l.ReadWrite(u.Name).Write()
		default:
			m = l.Mutex(u.Name)
		}
		b.use(ctx, m, u, rand.N(100*time.Millisecond))
	}
}

// workLong uses a lock for more than two TTLs at a time.
func (b *bench) workLong(ctx context.Context, l *lock.Locker) {
	for u := (chaos.Use{Name: "long"}); ctx.Err() == nil; {
		b.use(ctx, l.Mutex(u.Name), u, 2*benchTTL+rand.N(benchTTL))
	}
}

// use uses a lock for a while.
func (b *bench) use(ctx context.Context, m *lock.Mutex, u chaos.Use, d time.Duration) {
	u.Called = time.Now()
	lease, err := m.Lock(ctx)
	if err != nil {
		b.refused.Add(1)
		return
	}
	u.Granted, u.Valid, u.Token, u.Owner = time.Now(), u.Called, lease.Token(), lease.Owner()
	for {
		now := time.Now()
		if !lease.Valid() {
			b.refused.Add(1)
			break
		}
		u.Valid = now
		if now.Sub(u.Granted) > d || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	b.record(u)
	_ = lease.Unlock(context.WithoutCancel(ctx))
}

func (b *bench) record(u chaos.Use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.uses = append(b.uses, u)
	if u.Valid.Sub(u.Granted) > 2*benchTTL {
		b.renewed.Add(1)
	}
	b.grants.Add(1)
}

// progresses waits for so many further uses.
func (b *bench) progresses(n int64, when string) {
	b.Helper()
	from := b.grants.Load()
	begin := time.Now()
	for b.grants.Load() < from+n {
		if time.Since(begin) > limit {
			b.Fatalf("%s: %d locks were granted in a minute", when, b.grants.Load()-from)
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.Logf("%s: %d locks in %v", when, b.grants.Load()-from, time.Since(begin).Round(time.Millisecond))
}

// leader waits until the members, except without, agree on a leader, and returns it.
func (c *cluster) leader(t testing.TB, without ...int) int {
	begin := time.Now()
	for ; time.Since(begin) < limit; time.Sleep(20 * time.Millisecond) {
		for i, m := range c.members {
			if m.command == nil || len(without) > 0 && without[0] == i {
				continue
			}
			client := m.dial(t)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := client.Get(ctx, "any")
			status, err2 := client.Status(ctx, "http://"+m.client)
			cancel()
			_ = client.Close()
			if err != nil || err2 != nil {
				continue
			}
			for j, other := range c.members {
				if other.id(t) == status.Leader && (len(without) == 0 || without[0] != j) {
					return j
				}
			}
		}
	}
	t.Fatal("there is no leader")
	return 0
}

// id returns a member's id.
func (m *member) id(t testing.TB) uint64 {
	if m.known == 0 {
		status, err := m.dial(t).Status(context.Background(), "http://"+m.client)
		require.NoError(t, err)
		m.known = status.Header.MemberId
	}
	return m.known
}

func (m *member) signal(t testing.TB, s syscall.Signal) {
	require.NoError(t, m.command.Process.Signal(s))
}

// isolate cuts a member off from the others, in both directions. Clients reach it.
func (b *bench) isolate(i int) {
	id := strconv.FormatUint(b.ids[i], 16)
	for j, p := range b.peers {
		p.set(func(source string) bool { return j == i || source == id })
	}
}

// network returns all proxies.
func (b *bench) network() []*proxy { return slices.Concat(append(b.wires, b.peers)...) }

func (b *bench) heal() {
	for _, p := range b.network() {
		p.set(nil)
	}
}

// everything is a source of all connections.
func everything(string) bool { return true }

// faults are what happens to a cluster. Each returns what ends it, and whether locks are granted
// meanwhile.
var faults = []struct {
	name  string
	begin func(b *bench) (end func(), progress bool)
}{
	{"the leader is killed", func(b *bench) (func(), bool) { return b.killed(b.leader(b)), true }},
	{"a follower is killed", func(b *bench) (func(), bool) { return b.killed((b.leader(b) + 1) % members), true }},
	{"the leader is paused", func(b *bench) (func(), bool) { return b.paused(b.leader(b)), true }},
	{"a follower is paused", func(b *bench) (func(), bool) { return b.paused((b.leader(b) + 1) % members), true }},
	{"the leader is cut off from the members", func(b *bench) (func(), bool) {
		b.isolate(b.leader(b))
		return b.heal, true
	}},
	{"the leader is cut off from the clients", func(b *bench) (func(), bool) {
		i := b.leader(b)
		for _, wires := range b.wires {
			wires[i].set(everything)
		}
		return b.heal, true
	}},
	{"a client is cut off from all members", func(b *bench) (func(), bool) {
		u := chaos.Use{Name: "m0", Called: time.Now()}
		lease, err := b.lockers[0].Mutex(u.Name).Lock(context.Background())
		require.NoError(b, err)
		u.Granted, u.Valid, u.Token, u.Owner = time.Now(), u.Called, lease.Token(), lease.Owner()
		for _, p := range b.wires[0] {
			p.set(everything)
		}
		for now := time.Now(); lease.Valid(); now = time.Now() { // it is lost at its end, while etcd keeps it longer
			if u.Valid = now; now.Sub(u.Granted) > limit {
				b.Fatal("the lock is valid for a minute without the cluster")
			}
			time.Sleep(time.Millisecond)
		}
		b.record(u)
		b.use(context.Background(), b.lockers[1].Mutex(u.Name), chaos.Use{Name: u.Name}, 0) // etcd ends it, too
		select {
		case <-lease.Lost():
		case <-time.After(limit):
			b.Fatal("the loss is not reported")
		}
		return b.heal, true
	}},
	{"the leader is moved", func(b *bench) (func(), bool) {
		i := b.leader(b)
		_, err := b.members[i].dial(b).MoveLeader(context.Background(), b.ids[(i+1)%members])
		if err != nil {
			b.Logf("the leader was not moved: %v", err) // it has changed by itself
		}
		return func() {}, true
	}},
	{"connections are reset", func(b *bench) (func(), bool) {
		for _, p := range b.network() {
			p.reset()
		}
		return func() {}, true
	}},
	{"the clients' clocks are an hour ahead, and back", func(b *bench) (func(), bool) {
		b.skew.Store(int64(time.Hour))
		return func() { b.skew.Store(int64(-time.Hour)) }, true
	}},
	{"the history is compacted", func(b *bench) (func(), bool) {
		for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			client := b.members[b.leader(b)].dial(b)
			response, err := client.Get(context.Background(), "any")
			if err == nil {
				_, err = client.Compact(context.Background(), response.Header.Revision)
			}
			if err == nil {
				return func() {}, true
			}
			b.Logf("the history was not compacted: %v", err) // the leader has changed by itself
			if time.Since(begin) > limit {
				b.Fatal("the history cannot be compacted")
			}
		}
	}},
	{"all members are killed", func(b *bench) (func(), bool) {
		var ends []func()
		for i := range members {
			ends = append(ends, b.killed(i))
		}
		return func() {
			for _, end := range ends {
				end()
			}
		}, false
	}},
}

func (b *bench) killed(i int) (end func()) {
	b.members[i].kill()
	return func() { b.members[i].start(b) }
}

func (b *bench) paused(i int) (end func()) {
	b.members[i].signal(b, syscall.SIGSTOP)
	return func() { b.members[i].signal(b, syscall.SIGCONT) }
}

// breakBy breaks the cluster by a fault, and checks that locks are granted meanwhile, and
// afterwards.
func (b *bench) breakBy(i int) {
	fault := faults[i]
	end, progress := fault.begin(b)
	if progress {
		b.progresses(20, fault.name)
	}
	end()
	b.await(b)
	b.progresses(20, fault.name+", and it is over")
}

// renews waits for uses that outlast their TTL twice, which need renewals.
func (b *bench) renews(n int64, when string) {
	b.Helper()
	for begin, from := time.Now(), b.renewed.Load(); b.renewed.Load() < from+n; time.Sleep(5 * time.Millisecond) {
		if time.Since(begin) > limit {
			b.Fatalf("%s: %d locks were held for more than two TTLs in a minute", when, b.renewed.Load()-from)
		}
	}
}

// check checks all uses.
func (b *bench) check() {
	b.mu.Lock()
	defer b.mu.Unlock()
	checked := chaos.Check(b, b.uses)
	voided := int64(0)
	for _, s := range b.stores {
		voided += s.keeper.voided.Load()
	}
	b.Logf("%d uses, %d of more than two TTLs, %d checks; %d were lost or failed; %d rounds of keepalives were voided by a change of the leader",
		len(b.uses), b.renewed.Load(), checked, b.refused.Load(), voided)
}

var benchTime = flag.Duration("time", 30*time.Second, "how long TestFaultBench breaks a cluster, at least")

// TestFaultBench breaks a cluster in every way, and then in ways drawn at random.
func TestFaultBench(t *testing.T) {
	b := startBench(t, 4)
	b.progresses(20, "intact")
	b.renews(3, "intact")
	begin := time.Now()
	for _, i := range rand.Perm(len(faults)) {
		b.breakBy(i)
	}
	for time.Since(begin) < *benchTime {
		b.breakBy(rand.IntN(len(faults)))
	}
	b.renews(3, "after all faults")
	b.check()
}
