//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// round is one round: it executes its plan, and checks the result.
type round struct {
	*judge
	servers *servers
	phases  []string // the phases of the quiet period that have passed

	// own is the bench's own store, without a proxy and with all rights.
	own    *redisstore.Store
	locker *lock.Locker

	mu      sync.Mutex
	current [places]*process
	all     []*process
}

// reports are the reports of all processes.
func (r *round) reports() (all []*reports) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.all {
		all = append(all, &p.reports)
	}
	return all
}

// settings are the parameters of a run apart from its draws.
type settings struct {
	strict    bool   // also check what a busy machine's timers may break
	histories string // the folder to write them to; "": nowhere
}

// play plays a round.
func play(t *testing.T, p *plan, s settings, tally *tally) {
	r := &round{judge: newJudge(t, p, tally)}
	r.strict = s.strict
	r.servers = serve(t, p)
	hard, done := context.WithTimeout(context.Background(), p.Active+4*time.Minute)
	defer done()
	r.openOwn(t)
	for _, n := range p.Names {
		r.masters[n.Name] = r.servers.master(hard, p.Mapping.key(n.Name))
	}
	for place := range places {
		r.start(place)
	}
	defer r.killAll()
	r.begun = now()
	for _, n := range r.servers.nodes {
		go r.watch(hard, n)
	}

	active, calm := context.WithTimeout(hard, p.Active)
	r.inflict(active, hard)
	<-active.Done()
	calm()
	r.checkHealed(hard)
	r.healed = now()

	r.quiet(hard)
	h := collect(r.reports())
	r.check(h, now())
	t.Log(r.summary(h))
	if s.histories != "" {
		r.write(h, s.histories)
	}
}

// checkHealed finds servers that a fault has left as no promise holds with: a replica, one
// that refuses writes, or a script that never ends. All of that is the bench's own.
func (r *round) checkHealed(ctx context.Context) {
	for _, n := range r.servers.nodes {
		if err := n.do(ctx, ctx, "PING"); err != nil {
			r.trouble("node %d is left without an answer: %v", n.number, err)
			continue
		}
		if role, err := n.admin.Do(ctx, "ROLE").Slice(); r.servers.set == nil && (err != nil || role[0] != "master") {
			r.trouble("node %d is left with the role %v: %v", n.number, role, err)
		}
		for _, option := range []string{"maxmemory", "min-replicas-to-write"} {
			if value, err := n.admin.ConfigGet(ctx, option).Result(); err != nil || value[option] != "0" {
				r.trouble("node %d is left with %v: %v", n.number, value, err)
			}
		}
	}
}

// write writes the uses of a round, and its faults, to a file of a folder.
func (r *round) write(h *history, folder string) {
	var b strings.Builder
	for _, w := range r.journal.between(0, forever, nil) {
		fmt.Fprintf(&b, "%s-%s %v\n", w.Begin.of(r.begun), w.End.of(r.begun), w)
	}
	for _, u := range h.uses {
		fmt.Fprintln(&b, u.in(r.begun))
	}
	name := filepath.Join(folder, fmt.Sprintf("%d-%d.txt", r.plan.Seed, r.plan.Round))
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		r.trouble("%v", err)
	}
}

func (r *round) summary(h *history) string {
	grants := 0
	for _, u := range h.uses {
		if u.granted {
			grants++
		}
	}
	kinds := map[string]int{}
	for _, w := range r.journal.between(0, forever, nil) {
		kinds[w.Kind]++
	}
	return fmt.Sprintf("-seed %d -round %d: %s, %v and %v quiet (%s), %d uses, %d grants, %d messages, faults %v",
		r.plan.Seed, r.plan.Round, r.plan.Site, r.plan.Active.Round(time.Second), now().sub(r.healed).Round(time.Second), strings.Join(r.phases, ", "), len(h.uses), grants, len(h.messages), kinds)
}

// trouble reports that the bench itself failed to do something.
func (r *round) trouble(format string, args ...any) {
	r.t.Errorf("the bench: "+format, args...)
}

func (r *round) openOwn(t *testing.T) {
	store, err := redisstore.New(r.servers.data, r.plan.Mapping.config())
	if err != nil {
		t.Fatal(err)
	}
	locker, err := lock.New(store, lock.Config{TTL: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.own, r.locker = store, locker
	t.Cleanup(func() {
		_ = locker.Close()
		_ = store.Close()
	})
}

// start starts a process at a place.
func (r *round) start(place int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.plan.Workers[place]
	p.URLs, p.Wires, p.Nodes = r.servers.urls(place), r.servers.through(place), r.servers.addresses(place)
	number := len(r.all) + 1
	p.Seed += uint64(number)
	for i := range p.Drivers {
		p.Drivers[i].Seed += uint64(number)
	}
	proc, err := spawn(number, place, p)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	r.current[place] = proc
	r.all = append(r.all, proc)
}

// process is the process at a place.
func (r *round) process(place int) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current[max(place, 0)]
}

// replace starts a process in place of one that was killed.
func (r *round) replace(dead *process) {
	if r.process(dead.place) == dead {
		r.start(dead.place)
	}
}

func (r *round) killAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.all {
		select {
		case <-p.exited:
		default:
			p.kill()
		}
	}
}

// living are the processes that were not killed.
func (r *round) living() (all []*process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.all {
		if !p.dead() {
			all = append(all, p)
		}
	}
	return all
}

// watch checks that a server answers unless a fault prevents it. A server that does not
// is killed, so that the round can continue. One that answers late gets too little of the
// processor: that is recorded, since it may explain the failure of a request.
func (r *round) watch(ctx context.Context, n *node) {
	silent := func(w *window) bool {
		return (w.Node == n.number || w.Node < 0) && (w.Kind == frozen || w.Kind == mute || w.Kind == paused || w.Kind == restarted || w.Kind == busyScript)
	}
	since := now()
	for ctx.Err() == nil {
		try, cancel := context.WithTimeout(ctx, time.Second)
		asked := now()
		err := n.admin.Ping(try).Err()
		cancel()
		at := now()
		if at.sub(asked) > stallLimit && len(r.journal.between(asked, at, silent)) == 0 {
			r.journal.note(window{Kind: slowReply, Place: -1, Node: n.number, Begin: asked, End: at})
		}
		r.tally.check(serverAnswers, 1)
		if err == nil && at.sub(since) < 4*time.Second || len(r.journal.between(since-instant(time.Second), at, silent)) > 0 {
			since = at
			pause(ctx, 200*time.Millisecond)
			continue
		}
		if err == nil {
			// It has answered in the end.
			since = at
			continue
		}
		if ctx.Err() != nil || at.sub(since) < 8*time.Second {
			continue
		}
		r.broke(serverAnswers, since, at, fmt.Sprintf("the server has not answered for %v: %v", at.sub(since), err))
		w := r.journal.open(window{Kind: hung, Place: -1, Node: n.number})
		n.kill()
		if err := n.launch(); err != nil {
			r.trouble("%v", err)
		}
		r.journal.shut(w)
		w.Begin = since
		since = now()
	}
}

// askForeign tries to acquire a lock whose name has a foreign value.
func (r *round) askForeign(ctx, hard context.Context, name string) {
	for ctx.Err() == nil {
		begin := now()
		lease, err := r.locker.Mutex(name).TryLock(ctx)
		if lease != nil {
			_ = lease.Unlock(hard)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, lock.ErrUnavailable):
		case err != nil && !errors.Is(err, lock.ErrNotAcquired) && !errors.Is(err, lock.ErrForeign):
		case len(r.journal.between(r.begun, now(), ofKind(dataLost, hung))) > 0:
			return // it may be gone
		default:
			r.tally.check(foreignTold, 1)
			if !errors.Is(err, lock.ErrForeign) {
				r.broke(foreignTold, begin, now(), fmt.Sprintf("TryLock returned %v", err))
				return
			}
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// slowest returns the longest run of a script on this server.
func (n *node) slowest(ctx context.Context) (took time.Duration, what string, ended instant) {
	entries, err := n.admin.SlowLogGet(ctx, 100).Result()
	if err != nil {
		return 0, "", 0
	}
	clock, err := n.admin.Time(ctx).Result()
	if err != nil {
		return 0, "", 0
	}
	at := now()
	for _, e := range entries {
		if e.Duration > took && len(e.Args) > 0 && strings.HasPrefix(strings.ToUpper(e.Args[0]), "EVALSHA") {
			took, what, ended = e.Duration, strings.Join(e.Args, " "), at.add(e.Time.Sub(clock))
		}
	}
	return took, what, ended
}

func (r *round) queueStats(ctx context.Context) (delayqueue.Stats, error) {
	q, err := delayqueue.New(r.own, r.plan.Workers[0].Queue.Name, delayqueue.Config{})
	if err != nil {
		return delayqueue.Stats{}, err
	}
	defer q.Close()
	return q.Stats(ctx)
}
