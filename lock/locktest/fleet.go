package locktest

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest/internal/network"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// ErrKilled is the cause of the end of a process's context if the process was killed.
var ErrKilled = errors.New("locktest: the process was killed")

// FleetConfig configures [Play]. Its zero value is ready to use.
type FleetConfig struct {
	// Processes is how many processes run at a time. Default: 3.
	Processes int
	// Time is for how long faults come, in virtual time. Default: 1 h.
	Time time.Duration
	// Quiet is for how long the processes run on after the last fault, in virtual time, before
	// their contexts end. Default: 5 min.
	Quiet time.Duration
	// Every is the mean time between the beginnings of two faults, in virtual time. Default: 1
	// min. Negative: no faults.
	Every time.Duration
	// Seed decides on the faults and on the delays of the network. The Go scheduler decides on the
	// order of what happens at one virtual instant, so a rare failure may need some repetitions.
	// Default: 1.
	Seed uint64
	// LoseData lets the server restart without its data at times. No lock on a single server
	// keeps its promises then. Default: false, it restarts with its data.
	LoseData bool
}

func (c FleetConfig) withDefaults() FleetConfig {
	c.Processes = cmp.Or(c.Processes, 3)
	c.Time = cmp.Or(c.Time, time.Hour)
	c.Quiet = cmp.Or(c.Quiet, 5*time.Minute)
	c.Every = cmp.Or(c.Every, time.Minute)
	c.Seed = cmp.Or(c.Seed, 1)
	return c
}

// Play runs a fleet of processes of the caller's own code in virtual time, while faults come:
// slow, lost and late messages, broken connections, processes that are cut off, stand still or
// die, and a server that freezes or restarts. An hour takes a second or so.
//
// Play calls run once for each process, in a goroutine of its own, inside a synctest bubble of
// t. run returns once its context has ended: because the process was killed, with cause
// [ErrKilled], or because the fleet ends. Play fails t if it has not returned a minute of
// virtual time later. A killed process cannot reach the server any more and releases nothing;
// another process takes its place two seconds to a minute later. One that stands still is
// modelled by its network: its goroutines run on.
//
// Play logs the faults, which go test prints if t fails.
func Play(t *testing.T, c FleetConfig, run func(ctx context.Context, p *Process)) {
	t.Helper()
	c = c.withDefaults()
	if c.Processes < 0 || c.Time < 0 || c.Quiet < 0 {
		t.Fatalf("locktest: a negative number of processes, or a negative time: %+v", c)
	}
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{FleetConfig: c, t: t, run: run, server: Start(t), begun: time.Now(), rng: rand.New(rand.NewPCG(c.Seed, 0))}
		for range c.Processes {
			f.start()
		}
		f.inflict()
		time.Sleep(c.Quiet)
		f.end()
	})
}

// Process is a process of a fleet. Its methods are safe for concurrent use.
type Process struct {
	number   int
	t        testing.TB
	server   *Server
	network  *network.Network
	cancel   context.CancelCauseFunc
	returned chan struct{} // closed when run has returned

	mu    sync.Mutex
	ended bool           // guarded by mu; what is opened from now on is closed at once
	close []func() error // guarded by mu
}

// Number returns the process's number. The first processes have 1 and those that follow it; each
// that takes the place of another one has the next.
func (p *Process) Number() int { return p.number }

// Client returns a new client of the fleet's server, by the process's network. It is closed when
// the process has ended.
func (p *Process) Client() *redis.Client {
	o := *p.server.Client(p.t).Options()
	o.Dialer, o.Addr = p.network.Dial, "127.0.0.1:6379" // the resolver of names does not work in a bubble
	client := redis.NewClient(&o)
	p.closeLater(client.Close)
	return client
}

// Store returns a new store on the fleet's server. It is closed when the process has ended. A
// config that [redisstore.New] refuses fails the test.
func (p *Process) Store(c redisstore.Config) *redisstore.Store {
	store, err := redisstore.New(p.Client(), c)
	if err != nil {
		p.fail(err)
	}
	p.closeLater(store.Close)
	return store
}

// Locker returns a new locker on the fleet's server. It is closed when the process has ended. A
// config that [lock.New] refuses fails the test.
func (p *Process) Locker(c lock.Config) *lock.Locker {
	locker, err := lock.New(p.Store(redisstore.Config{}), c)
	if err != nil {
		p.fail(err)
	}
	p.closeLater(locker.Close)
	return locker
}

// fail fails the test, and ends the goroutine of run as [testing.T.FailNow] does that of a test.
func (p *Process) fail(err error) {
	p.t.Errorf("locktest: process %d: %v", p.number, err)
	runtime.Goexit()
}

func (p *Process) closeLater(f func() error) {
	p.mu.Lock()
	ended := p.ended
	if !ended {
		p.close = append(p.close, f)
	}
	p.mu.Unlock()
	if ended {
		_ = f()
	}
}

// closeAll closes what the process has opened, the latest first.
func (p *Process) closeAll() {
	p.mu.Lock()
	all := p.close
	p.ended = true
	p.mu.Unlock()
	for _, f := range slices.Backward(all) {
		if err := closing(f); err != nil {
			p.t.Errorf("locktest: process %d: %v", p.number, err)
		}
	}
}

// fleet are the processes of a call of Play.
type fleet struct {
	FleetConfig
	t      *testing.T
	run    func(ctx context.Context, p *Process)
	server *Server
	begun  time.Time
	rng    *rand.Rand
	faults sync.WaitGroup // those that have begun, and processes that are to begin
	open   sync.WaitGroup // processes that have not closed what they opened

	mu      sync.Mutex
	all     []*Process // guarded by mu
	living  []*Process // guarded by mu
	freezes int        // guarded by mu; of the server, that have not ended
}

func (f *fleet) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	number := len(f.all) + 1
	ctx, cancel := context.WithCancelCause(context.Background())
	p := &Process{
		number: number, t: f.t, server: f.server, cancel: cancel, returned: make(chan struct{}),
		network: network.New(f.server.dial, f.Seed+uint64(number), network.Usual),
	}
	f.all, f.living = append(f.all, p), append(f.living, p)
	f.open.Go(func() {
		defer p.closeAll()
		defer close(p.returned)
		f.run(ctx, p)
	})
}

// inflict begins faults one after the other, and ends them. It returns when the last has ended.
func (f *fleet) inflict() {
	for {
		wait, left := f.rng.ExpFloat64()*float64(f.Every), f.Time-time.Since(f.begun)
		if f.Every < 0 || wait >= float64(left) {
			time.Sleep(left)
			break
		}
		time.Sleep(time.Duration(wait))
		f.fault()
	}
	f.faults.Wait()
}

// fault draws a fault, and begins it if any process is alive.
func (f *fleet) fault() {
	f.mu.Lock()
	living := slices.Clone(f.living)
	f.mu.Unlock()
	if len(living) == 0 {
		return
	}
	lasting := time.Duration(f.rng.Int64N(int64(time.Minute))) >> f.rng.IntN(8)
	during := func(end func()) {
		f.faults.Go(func() {
			time.Sleep(lasting)
			end()
		})
	}
	logf := func(format string, args ...any) {
		f.t.Logf("%v: "+format, append([]any{time.Since(f.begun).Round(time.Millisecond)}, args...)...)
	}
	p := living[f.rng.IntN(len(living))]
	on := func(what string, fault network.Fault) {
		logf("the messages of process %d are %s for %v", p.number, what, lasting)
		p.network.Begin(&fault)
		during(func() { p.network.End(&fault) })
	}
	switch f.rng.IntN(10) {
	case 0:
		on("slow", network.Fault{Requests: 50 * time.Millisecond, Replies: 50 * time.Millisecond, Jitter: 100 * time.Millisecond})
	case 1:
		on("late at times", network.Fault{LateIn: 10, Late: 4 * time.Second})
	case 2:
		on("lost", network.Fault{LoseRequests: true, LoseReplies: true})
	case 3:
		on("lost on their way back", network.Fault{LoseReplies: true})
	case 4, 5:
		on("held, as it stands still,", network.Fault{HoldRequests: true, HoldReplies: true})
	case 6:
		logf("the connections of process %d are reset", p.number)
		p.network.Reset()
	case 7:
		f.kill(p, logf)
	case 8:
		logf("the server is frozen for %v", lasting)
		f.freeze(1)
		during(func() { f.freeze(-1) })
	case 9:
		f.restart(logf)
	}
}

// freeze begins a freeze of the server, by 1, or ends one, by -1. The server thaws with the last.
func (f *fleet) freeze(by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.freezes += by; f.freezes > 0 {
		f.server.Freeze()
	} else {
		f.server.Thaw()
	}
}

// kill kills a process, and has another one start later.
func (f *fleet) kill(p *Process, logf func(string, ...any)) {
	logf("process %d is killed", p.number)
	p.network.Kill()
	p.cancel(ErrKilled)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.living = slices.DeleteFunc(f.living, func(o *Process) bool { return o == p })
	f.faults.Go(p.awaitReturn)
	later := 2*time.Second + time.Duration(f.rng.Int64N(int64(58*time.Second)))
	f.faults.Go(func() {
		time.Sleep(later)
		f.start()
	})
}

// restart restarts the server.
func (f *fleet) restart(logf func(string, ...any)) {
	synctest.Wait()
	if f.LoseData && f.rng.IntN(2) == 0 {
		logf("the server is restarted without its data")
		f.server.Restart(Data{})
		return
	}
	logf("the server is restarted")
	f.server.Restart(f.server.Save())
}

// end ends the processes.
func (f *fleet) end() {
	for _, p := range f.living {
		p.cancel(nil)
		f.faults.Go(p.awaitReturn)
	}
	f.faults.Wait()
	f.open.Wait()
	time.Sleep(probePause)
}

// awaitReturn fails the test unless a process returns soon after the end of its context.
func (p *Process) awaitReturn() {
	select {
	case <-p.returned:
	case <-time.After(time.Minute):
		p.t.Errorf("locktest: process %d has not returned a minute after the end of its context", p.number)
	}
}
