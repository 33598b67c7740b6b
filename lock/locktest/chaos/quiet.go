//go:build linux

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// quiet waits, after the last fault has ended, until the expected state is reached, and
// reports deviations.
func (r *round) quiet(ctx context.Context) {
	phases := []struct {
		name string
		run  func(context.Context)
	}{
		{"slow scripts", r.checkSlow}, {"finish", r.finish}, {"holders", r.checkHolders}, {"counts", r.checkCounts}, {"probe", r.probe},
		{"drain", r.checkDrained}, {"subscriptions", r.checkSubscriptions}, {"close", r.closeWorkers}, {"keys", r.checkKeys},
	}
	for _, phase := range phases {
		begin := now()
		phase.run(ctx)
		if took := now().sub(begin); took > 500*time.Millisecond {
			r.phases = append(r.phases, fmt.Sprintf("%s %.1fs", phase.name, took.Seconds()))
		}
	}
}

// finish waits until every driver has acquired what it waits for, and released it.
func (r *round) finish(ctx context.Context) {
	for _, p := range r.living() {
		p.send(orderGiveUp)
		p.send(orderFinish)
	}
	r.awaitPhase(ctx, evFinished)
}

// probe makes every process acquire every lock once more.
func (r *round) probe(ctx context.Context) {
	r.release(ctx)
	for _, p := range r.living() {
		p.send(orderProbe)
	}
	r.awaitPhase(ctx, evProbed)
}

// release removes legitimate reasons for waiting: closed latches whose setters are dead.
func (r *round) release(ctx context.Context) {
	for _, n := range r.plan.Names {
		if n.Kind == latchKind {
			_, _ = r.locker.Latch(n.Name).Delete(ctx)
		}
	}
}

// checkSlow finds scripts that have kept a server busy, by the server's own measurements.
// These include the time in which the server got no processor.
func (r *round) checkSlow(ctx context.Context) {
	if len(r.journal.between(0, forever, ofKind(frozen, mute))) > 0 {
		return // it also measures the time for which it was stopped
	}
	h := collect(r.reports())
	for _, n := range r.servers.nodes {
		r.tally.check(serverAnswers, 1)
		slow, what, ended := n.slowest(ctx)
		from, to := ended.add(-slow-time.Second), ended.add(time.Second) // the server has the second of its end
		if len(r.journal.between(0, forever, ofKind(stepped))) > 0 {
			from, to = r.begun, now() // its clock was set
		}
		switch {
		case slow <= time.Second:
		case !r.strict && r.suspended(h, from, to, slow/4):
			r.tally.excuse(serverAnswers)
		default:
			r.broke(serverAnswers, from, to, fmt.Sprintf("a script ran for %v: %s", slow, short120(what)))
		}
	}
}

// suspended reports whether a process that no fault stopped got no processor for as long,
// between two instants.
func (r *round) suspended(h *history, from, to instant, most time.Duration) bool {
	for _, p := range r.all {
		byFault := func(w *window) bool { return w.Kind == stopped && w.Process == p.number }
		if len(r.journal.between(0, forever, byFault)) == 0 && h.lagged(p.number, from, to, most) {
			return true
		}
	}
	return false
}

// awaitPhase waits until every living process has reached a phase. Meanwhile it watches
// free locks that have waiters.
func (r *round) awaitPhase(ctx context.Context, phase string) {
	free, orphans := map[string]instant{}, map[string]instant{} // since when each lock is
	begin := now()
	limit := r.patience()
	for ctx.Err() == nil {
		waiting := r.without(phase)
		if len(waiting) == 0 {
			r.tally.check(noWaiterStuck, 1)
			return
		}
		h := collect(r.reports())
		r.watchFree(ctx, h, free)
		r.watchOwners(ctx, h, orphans)
		if now().sub(begin) > limit {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	h := collect(r.reports())
	for _, p := range r.without(phase) {
		var stuck []*use
		for _, u := range h.uses {
			if u.process == p.number && u.released == forever && len(u.failures) == 0 && !r.plan.isVictim(u.name) {
				stuck = append(stuck, u)
			}
		}
		if len(stuck) > 0 && r.starved(h, begin) {
			r.tally.excuse(noWaiterStuck)
		} else if len(stuck) > 0 {
			r.broke(noWaiterStuck, begin, now(), fmt.Sprintf("process %d has not %s within %v", p.number, phase, limit), stuck[:min(6, len(stuck))]...)
		}
	}
}

func (p *plan) isVictim(name string) bool {
	return slices.ContainsFunc(p.Names, func(n namePlan) bool { return n.Name == name && n.Victim })
}

// without returns the living processes that have not reached a phase. One that has ended
// by itself is reported once.
func (r *round) without(phase string) (waiting []*process) {
	for _, p := range r.living() {
		select {
		case <-p.exited:
			p.mu.Lock()
			p.isDead, p.died = true, now()
			p.mu.Unlock()
			r.broke(noCrash, now(), now(), fmt.Sprintf("process %d: %v: %s", p.number, p.command.ProcessState, tail(p.stderr.String())))
			continue
		default:
		}
		if !p.has(phase) {
			waiting = append(waiting, p)
		}
	}
	return waiting
}

func tail(s string) string { return s[max(0, len(s)-6000):] }

// watchFree records since when locks are free that had a waiter all along.
func (r *round) watchFree(ctx context.Context, h *history, free map[string]instant) {
	for _, n := range r.plan.Names {
		if n.Victim || n.Kind == semaphoreKind || n.Kind == latchKind || n.Kind == permitsKind || n.isOne() {
			continue
		}
		if !r.isFree(ctx, n.Name) {
			delete(free, n.Name)
			continue
		}
		var waits []*use
		for _, u := range h.uses {
			if u.name == n.Name && u.back == forever && u.released == forever && !u.isDead && u.ttl >= 500*time.Millisecond {
				waits = append(waits, u)
			}
			if u.name == n.Name && u.granted && u.back >= free[n.Name] {
				delete(free, n.Name)
			}
		}
		since, ok := free[n.Name]
		if len(waits) == 0 {
			delete(free, n.Name)
		} else if !ok {
			free[n.Name] = now()
		} else if now().sub(since) > r.freeLimit() && r.starved(h, since) {
			r.tally.excuse(freeGranted)
			free[n.Name] = now()
		} else if now().sub(since) > r.freeLimit() {
			r.broke(freeGranted, since, now(), fmt.Sprintf("%q is free since %s, and no waiter is granted it", short(n.Name), since.of(r.begun)), waits[:min(3, len(waits))]...)
			free[n.Name] = now().add(time.Hour)
		}
		r.tally.check(freeGranted, 1)
	}
}

// starved reports whether a process got so little of the processor since an instant that
// all requests with a short time to live may have failed.
func (r *round) starved(h *history, since instant) bool {
	for _, p := range r.living() {
		if h.lagged(p.number, since, now(), 30*time.Millisecond) {
			return true
		}
	}
	return false
}

// isFree reports whether a lock has no key on any server.
func (r *round) isFree(ctx context.Context, name string) bool {
	name = r.plan.Mapping.key(name)
	if r.plan.Site != five {
		count, err := r.servers.data.Exists(ctx, name).Result()
		return err == nil && count == 0
	}
	for _, n := range r.servers.nodes {
		if count, err := n.admin.Exists(ctx, name).Result(); err != nil || count > 0 {
			return false
		}
	}
	return true
}

// watchOwners records since when locks are held by owners of living processes that none
// of their drivers uses.
func (r *round) watchOwners(ctx context.Context, h *history, orphans map[string]instant) {
	if r.mayKeep() {
		return
	}
	known := map[string]bool{}
	for _, u := range h.uses {
		if u.granted && u.released == forever {
			known[u.owner] = true
		}
	}
	seen := map[string]bool{}
	for _, o := range r.owners(ctx, h) {
		if known[o.field] {
			continue
		}
		seen[o.key()] = true
		since, ok := orphans[o.key()]
		if !ok {
			orphans[o.key()] = now()
		} else if now().sub(since) > orphanLimit {
			r.broke(heldBySomebody, since, now(), o.String()+", and none of its drivers since "+since.of(r.begun), r.abandoned(h, o.name)...)
			orphans[o.key()] = now().add(time.Hour)
		}
	}
	for key := range orphans {
		if !seen[key] {
			delete(orphans, key)
		}
	}
}

// owner is an owner of a lock that belongs to a living process.
type owner struct {
	name, field string
	process     int
	left        time.Duration
}

func (o owner) key() string { return o.name + " " + o.field }

func (o owner) String() string {
	return fmt.Sprintf("%q is held by %s of process %d, for %v", short(o.name), o.field, o.process, o.left)
}

// owners reads the owners of all locks from the servers. A minority of a quorum holds no
// lock.
func (r *round) owners(ctx context.Context, h *history) (all []owner) {
	if r.plan.Site == five {
		return nil
	}
	pipe, hashes := r.servers.data.Pipeline(), map[namePlan]*redis.MapStringStringCmd{}
	for _, n := range r.plan.Names {
		if n.Victim || n.Kind == latchKind || n.Kind == semaphoreKind || n.Kind == permitsKind {
			continue // for permits see checkCounts
		}
		hashes[n] = pipe.HGetAll(ctx, r.plan.Mapping.key(n.Name))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for n, hash := range hashes {
		for field := range hash.Val() {
			parts := strings.Split(field, ":")
			if p, ours := h.clients[parts[0]]; ours && !r.all[p-1].dead() && len(parts) >= 2 && r.reads(ctx, n, field) {
				all = append(all, owner{n.Name, parts[0] + ":" + parts[1], p, r.servers.data.PTTL(ctx, r.plan.Mapping.key(n.Name)).Val()})
			}
		}
	}
	return all
}

// reads reports whether an owner's holds still last. A reader whose holds have ended
// stays in the lock's hash as long as others read.
func (r *round) reads(ctx context.Context, n namePlan, field string) bool {
	if n.Kind != writeKind || strings.HasSuffix(field, ":write") {
		return true
	}
	for _, node := range r.servers.nodes {
		holds, err := node.admin.Keys(ctx, "*:"+field+":rwlock_timeout:*").Result()
		if err == nil && len(holds) > 0 {
			return true
		}
	}
	return false
}

// abandoned returns the last acquisitions of a name that had no answer.
func (r *round) abandoned(h *history, name string) (uses []*use) {
	for _, u := range h.uses {
		if u.name == name && !u.granted && len(u.failures) > 0 && !u.failures[0].is("not acquired") {
			uses = append(uses, u)
		}
	}
	return uses[max(0, len(uses)-4):]
}

// until repeats check until it finds no fault, and returns the remaining faults after a
// limit.
func until[T any](ctx context.Context, limit time.Duration, check func() []T) (wrong []T) {
	for begin := now(); ; time.Sleep(200 * time.Millisecond) {
		wrong = check()
		if len(wrong) == 0 || now().sub(begin) > limit || ctx.Err() != nil {
			return wrong
		}
	}
}

// checkHolders finds locks that a living process holds on the server although none of its
// drivers does.
func (r *round) checkHolders(ctx context.Context) {
	if len(r.without(evFinished)) > 0 {
		return
	}
	h := collect(r.reports())
	wrong := until(ctx, cleanupLimit, func() []owner { return r.owners(ctx, h) })
	r.tally.check(heldBySomebody, len(r.plan.Names))
	if r.mayKeep() && len(wrong) > 0 {
		r.tally.excuse(heldBySomebody)
		return
	}
	for _, o := range wrong {
		r.broke(heldBySomebody, r.begun, now(), o.String()+", and its drivers have ended", r.abandoned(h, o.name)...)
	}
}

// checkCounts waits until every permit of a living process is back.
func (r *round) checkCounts(ctx context.Context) {
	if len(r.without(evFinished)) > 0 {
		return
	}
	if len(r.voidsExclusion(r.begun, forever)) > 0 || r.mayKeep() {
		r.tally.excuse(permitsBack)
		return
	}
	h := collect(r.reports())
	dead := false
	for _, p := range r.all {
		dead = dead || p.dead()
	}
	for _, n := range r.plan.Names {
		if n.Victim || n.Kind != semaphoreKind && n.Kind != permitsKind || h.refused[n.Name] != "" {
			continue
		}
		used, lost := 0, int64(0)
		for _, u := range h.uses {
			if u.name == n.Name {
				used++
				if u.diedWithPermit() {
					lost++
				}
			}
		}
		if used == 0 {
			continue
		}
		if n.Kind == permitsKind && dead {
			continue // they come back with their leases
		}
		r.tally.check(permitsBack, 1)
		wrong := until(ctx, cleanupLimit, func() []int64 {
			have, err := r.available(ctx, n)
			if err != nil || have > n.Count || have < n.Count-lost {
				return []int64{have}
			}
			return nil
		})
		if len(wrong) > 0 {
			r.broke(permitsBack, r.begun, now(), fmt.Sprintf("%s %q has %d permits of %d, of which %d may be lost with their processes", n.Kind, short(n.Name), wrong[0], n.Count, lost))
		}
	}
}

func (r *round) available(ctx context.Context, n namePlan) (int64, error) {
	if n.Kind == permitsKind {
		return r.locker.Permits(n.Name).Available(ctx)
	}
	return r.locker.Semaphore(n.Name).Available(ctx)
}

// checkDrained waits until the workers have handled all messages.
func (r *round) checkDrained(ctx context.Context) {
	if r.plan.Workers[0].Queue == nil {
		return
	}
	r.tally.check(queueDrained, 1)
	limit := 60*time.Second + r.patience()
	wrong := until(ctx, limit, func() []string {
		stats, err := r.queueStats(ctx)
		if err != nil || stats.Delayed+stats.Ready+stats.Leased+stats.Dead > 0 {
			return []string{fmt.Sprintf("%+v %v", stats, err)}
		}
		return nil
	})
	r.drained = len(wrong) == 0
	if !r.drained && r.starved(collect(r.reports()), r.healed) {
		r.tally.excuse(queueDrained)
	} else if !r.drained {
		r.broke(queueDrained, r.healed, now(), "messages are left: "+wrong[0])
	}
}

// checkSubscriptions waits until no subscription is left that only waiters need.
func (r *round) checkSubscriptions(ctx context.Context) {
	if len(r.without(evProbed)) > 0 {
		return
	}
	r.tally.check(noSubscription, 1)
	queue := "leasewheel_queue_channel"
	wrong := until(ctx, cleanupLimit, func() (left []string) {
		for _, n := range r.servers.nodes {
			for _, list := range []string{"CHANNELS", "SHARDCHANNELS"} {
				channels, err := n.admin.Do(ctx, "PUBSUB", list).StringSlice()
				if err != nil {
					continue
				}
				for _, c := range channels {
					if !strings.HasPrefix(c, queue) && !strings.HasPrefix(c, "__") && !strings.Contains(c, "victim") {
						left = append(left, c)
					}
				}
			}
		}
		return left
	})
	for _, c := range wrong {
		r.broke(noSubscription, r.healed, now(), "a subscription of "+short120(c))
	}
}

// closeWorkers makes all processes close their objects and end.
func (r *round) closeWorkers(ctx context.Context) {
	all := r.living()
	for _, p := range all {
		p.send(orderClose)
	}
	for _, p := range all {
		select {
		case <-p.exited:
		case <-time.After(answerLimit):
			p.send("") // an empty order: the process is stuck
			r.broke(noGoroutine, r.healed, now(), fmt.Sprintf("process %d has not closed within %v", p.number, answerLimit))
			p.kill()
			continue
		case <-ctx.Done():
			return
		}
		if code := p.command.ProcessState.ExitCode(); code != 0 {
			r.broke(noCrash, now(), now(), fmt.Sprintf("process %d: %v: %s", p.number, p.command.ProcessState, tail(p.stderr.String())))
		}
		r.tally.check(noCrash, 1)
		for _, e := range p.events {
			if e.What != evClosed {
				continue
			}
			r.tally.check(noGoroutine, 1)
			r.tally.check(heapBounded, 1)
			if len(e.Errors) > 0 {
				r.broke(noGoroutine, r.healed, now(), e.Text)
			}
			if e.N > 24<<20 {
				r.broke(heapBounded, r.healed, now(), fmt.Sprintf("%d bytes are left of process %d", e.N, p.number))
			}
		}
	}
}

// checkKeys finds keys without a TTL.
func (r *round) checkKeys(ctx context.Context) {
	counted := map[string]bool{}
	for _, n := range r.plan.Names {
		key := r.plan.Mapping.key(n.Name)
		if n.Kind == permitsKind {
			// Those in use, in Redisson's format: the entries of dead holders are removed
			// by the next request.
			counted[keysAt(key)[8]] = true
		}
		if n.Kind == semaphoreKind || n.Kind == permitsKind || n.Kind == latchKind || n.Victim {
			counted[key] = true
		}
	}
	for _, n := range r.servers.nodes {
		keys, err := n.admin.Keys(ctx, "*").Result()
		if err != nil {
			continue
		}
		for _, key := range keys {
			r.tally.check(keysEnd, 1)
			if counted[key] || strings.Contains(key, "victim") || strings.Contains(key, foreign) || strings.HasPrefix(key, "leasewheel_queue_token") {
				continue
			}
			left, err := n.admin.PTTL(ctx, key).Result()
			if err == nil && left == -1 {
				kind := n.admin.Type(ctx, key).Val()
				r.broke(keysEnd, r.healed, now(), fmt.Sprintf("%s %q", kind, short120(key)))
			}
		}
	}
}
