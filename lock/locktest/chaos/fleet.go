package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/internal/network"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// fleet is a round in virtual time, in one synctest bubble: processes of the real code, each
// with a network of its own to each of the servers, which run the real scripts.
type fleet struct {
	*judge
	servers []*locktest.Server
	locker  *lock.Locker // the fleet's own, which no fault reaches
	own     *redisstore.Store

	members []*member       // all of them
	current [places]*member // the latest at each place
	ending  sync.WaitGroup  // of those that were killed
}

// member is a process of a fleet.
type member struct {
	reports
	place  int
	worker *worker
	links  []*network.Network // to each server

	drivers, background sync.WaitGroup
	finish              context.CancelFunc
	giveUp              context.CancelCauseFunc
	closed              chan struct{} // closed when everything of it has ended

	standing chan struct{} // guarded by mu; closed when it goes on, nil unless it stands still
}

// newFleet starts the servers of a fleet. The caller is in a bubble.
func newFleet(t *testing.T, p *plan, tally *tally) *fleet {
	f := &fleet{judge: newJudge(t, p, tally)}
	f.strict, f.look = true, 2*time.Millisecond*time.Duration(p.Workers[0].Tempo)
	f.repeat = fmt.Sprintf("-fleet-seed %d -fleet-round %d -fleet-time %v", p.Seed, p.Round, p.Active)
	nodes := 1
	if p.Site == five {
		nodes = quorumNodes
	}
	for range nodes {
		s := locktest.Start(t)
		if p.Skew != 0 {
			s.DriftClock(p.Skew)
		}
		f.servers = append(f.servers, s)
	}
	f.openOwn()
	return f
}

// playFleet plays a round of a fleet, and returns its history. The caller checks that out of the bubble: no
// time passes in one that computes, so that the limit of a search would never end it.
func playFleet(t *testing.T, p *plan, tally *tally) (f *fleet, h *history, end instant) {
	f = newFleet(t, p, tally)
	for place := range places {
		f.start(place)
	}
	f.inflict()
	f.healed = now()
	h = f.quiet()
	return f, h, now()
}

// openOwn opens the fleet's own store, on the first server.
func (f *fleet) openOwn() {
	store, err := redisstore.New(f.servers[0].Client(f.t), f.plan.Mapping.config())
	if err != nil {
		f.t.Fatal(err)
	}
	f.own = store
	if f.locker, err = lock.New(store, lock.Config{}); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		_ = f.locker.Close()
		_ = store.Close()
	})
}

// start starts a process at a place.
func (f *fleet) start(place int) {
	number := len(f.members) + 1
	p := f.plan.Workers[place]
	p.Seed += uint64(number)
	p.Drivers = slices.Clone(p.Drivers)
	for i := range p.Drivers {
		p.Drivers[i].Seed += uint64(number)
	}
	m := &member{reports: newReports(number), place: place, closed: make(chan struct{})}
	m.worker = &worker{plan: p, report: m.report}
	if err := m.worker.open(func() ([]*redisstore.Store, error) { return f.openStores(m) }); err != nil {
		f.t.Fatal(err)
	}
	m.worker.finishing, m.finish = context.WithCancel(context.Background())
	m.worker.giveUp, m.giveUp = context.WithCancelCause(context.Background())
	f.members = append(f.members, m)
	f.current[place] = m
	m.report(event{What: evReady, Owner: m.worker.locker.ClientID()})
	m.worker.begin(&m.drivers, &m.background)
	if p.Pool > 0 {
		m.drivers.Go(m.worker.occupyPool)
	}
	go func() {
		m.drivers.Wait()
		m.report(event{What: evFinished})
	}()
}

func (f *fleet) openStores(m *member) (stores []*redisstore.Store, err error) {
	for n, s := range f.servers {
		options := *s.Client(f.t).Options()
		l := network.New(options.Dialer, m.worker.plan.Seed+uint64(n), network.Usual)
		m.links = append(m.links, l)
		options.Dialer, options.Addr = l.Dial, fmt.Sprintf("127.0.0.1:%d", n+1) // the resolver of names does not work in a bubble
		client := redis.NewClient(&options)
		m.worker.close = append(m.worker.close, client.Close)
		store, err := redisstore.New(client, m.worker.plan.Mapping.config())
		if err != nil {
			return nil, err
		}
		m.worker.close = append(m.worker.close, store.Close)
		stores = append(stores, store)
	}
	return stores, nil
}

// report adds an event. A process that stands still does so here, after the event: what its
// drivers have read before is from before.
func (m *member) report(e event) {
	if e.At == 0 {
		e.At = now()
	}
	m.stand()
	if !m.dead() {
		m.add(e)
	}
}

// stop lets the process stand still: its drivers at their next report, and its network. Its wheel
// and its watchdog run on, since a goroutine cannot be stopped.
func (m *member) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.standing = make(chan struct{})
}

func (m *member) resume(since instant) {
	m.add(event{What: evLag, At: now(), N: int64(now().sub(since))})
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.standing)
	m.standing = nil
}

func (m *member) stand() {
	m.mu.Lock()
	standing := m.standing
	m.mu.Unlock()
	if standing != nil {
		<-standing
	}
}

// kill ends the process: its connections break, it releases nothing, and its reports end.
func (f *fleet) kill(m *member) {
	m.mu.Lock()
	m.isDead, m.died = true, now()
	m.mu.Unlock()
	for _, l := range m.links {
		l.Kill()
	}
	f.ending.Go(func() { m.close(true) })
}

// close closes everything, and waits for the goroutines of the process.
func (m *member) close(dead bool) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if dead {
		cancel()
	}
	m.worker.closing = ctx
	m.finish()
	m.giveUp(errInterrupted)
	m.worker.closeAll()
	m.drivers.Wait()
	m.background.Wait()
	close(m.closed)
}

// living are the processes that were not killed.
func (f *fleet) living() (all []*member) {
	for _, m := range f.members {
		if !m.dead() {
			all = append(all, m)
		}
	}
	return all
}

func (f *fleet) collect() *history {
	var all []*reports
	for _, m := range f.members {
		all = append(all, &m.reports)
	}
	return collect(all)
}
