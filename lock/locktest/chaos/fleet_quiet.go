package chaos

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing/synctest"
	"time"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

// quiet waits, after the last fault has ended, until the expected state is reached, reports
// deviations, and ends the processes. It returns their history.
func (f *fleet) quiet() *history {
	for _, m := range f.living() {
		m.giveUp(errInterrupted)
		m.finish()
	}
	f.reach(evFinished)
	f.checkHolders()
	f.checkCounts()
	f.probe()
	f.checkDrained()
	f.checkSubscriptions()
	f.closeMembers()
	f.checkKeys()
	return f.collect()
}

// within waits until check finds no fault, and returns what is left after a limit.
func within(limit time.Duration, check func() []string) (wrong []string) {
	for begin := now(); ; time.Sleep(time.Second) {
		synctest.Wait()
		if wrong = check(); len(wrong) == 0 || now().sub(begin) > limit {
			return wrong
		}
	}
}

// reach waits until every living process has reached a phase.
func (f *fleet) reach(phase string) {
	begin, limit := now(), f.patience()+time.Minute
	f.tally.check(noWaiterStuck, 1)
	within(limit, func() (left []string) {
		for _, m := range f.living() {
			if !m.has(phase) {
				left = append(left, fmt.Sprint(m.number))
			}
		}
		return left
	})
	h := f.collect()
	for _, m := range f.living() {
		if m.has(phase) {
			continue
		}
		var stuck []*use
		for _, u := range h.uses {
			if u.process == m.number && u.released == forever && len(u.failures) == 0 {
				stuck = append(stuck, u)
			}
		}
		f.broke(noWaiterStuck, begin, now(), fmt.Sprintf("process %d has not %s within %v", m.number, phase, limit), stuck[:min(6, len(stuck))]...)
	}
}

// checkHolders finds locks that a living process holds on a server although none of its drivers
// does.
func (f *fleet) checkHolders() {
	if f.plan.Site == five {
		return // a minority holds no lock
	}
	living := map[string]int{}
	for _, m := range f.living() {
		living[m.client] = m.number
	}
	wrong := within(cleanupLimit, func() (left []string) {
		for _, n := range f.plan.Names {
			if n.Kind == latchKind || n.Kind == semaphoreKind || n.Kind == permitsKind {
				continue
			}
			for _, field := range f.servers[0].Fields(f.plan.Mapping.key(n.Name)) {
				client, _, _ := strings.Cut(field, ":")
				if number := living[client]; number > 0 && (n.Kind != writeKind || strings.HasSuffix(field, ":write")) {
					left = append(left, fmt.Sprintf("%q is held by %s of process %d", n.Name, field, number))
				}
			}
		}
		return left
	})
	f.tally.check(heldBySomebody, len(f.plan.Names))
	for _, what := range wrong {
		if f.mayKeep() {
			f.tally.excuse(heldBySomebody)
			continue
		}
		f.broke(heldBySomebody, f.begun, now(), what+", and its drivers have ended")
	}
}

// checkCounts waits until every permit is back.
func (f *fleet) checkCounts() {
	if len(f.voidsExclusion(f.begun, forever)) > 0 || f.mayKeep() {
		f.tally.excuse(permitsBack)
		return
	}
	h := f.collect()
	for _, n := range f.plan.Names {
		var available func(context.Context) (int64, error)
		switch n.Kind {
		case semaphoreKind:
			available = f.locker.Semaphore(n.Name).Available
		case permitsKind:
			available = f.locker.Permits(n.Name).Available
		default:
			continue
		}
		used, lost := 0, int64(0)
		for _, u := range h.uses {
			if u.name == n.Name {
				used++
			}
			if u.name == n.Name && n.Kind == semaphoreKind && u.diedWithPermit() {
				lost++
			}
		}
		if used == 0 {
			continue
		}
		f.tally.check(permitsBack, 1)
		limit := cleanupLimit
		if n.Kind == permitsKind && len(f.living()) < len(f.members) {
			limit += f.patience() // those of the dead come back with their leases
		}
		wrong := within(limit, func() []string {
			have, err := available(context.Background())
			if err != nil || have > n.Count || have < n.Count-lost {
				return []string{fmt.Sprintf("%d permits (%v)", have, err)}
			}
			return nil
		})
		for _, what := range wrong {
			f.broke(permitsBack, f.begun, now(), fmt.Sprintf("%s %q has %s of %d, of which %d may be lost with their processes", n.Kind, n.Name, what, n.Count, lost))
		}
	}
}

// probe makes every process acquire every lock once more.
func (f *fleet) probe() {
	for _, n := range f.plan.Names {
		if n.Kind == latchKind {
			_, _ = f.locker.Latch(n.Name).Delete(context.Background()) // its setter may be dead
		}
	}
	for _, m := range f.living() {
		go func() {
			m.worker.probe()
			m.report(event{What: evProbed})
		}()
	}
	f.reach(evProbed)
}

// checkDrained waits until the workers have handled all messages.
func (f *fleet) checkDrained() {
	queue := f.plan.Workers[0].Queue
	if queue == nil {
		return
	}
	q, err := delayqueue.New(f.own, queue.Name, delayqueue.Config{})
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = q.Shutdown(context.Background()) }()
	f.tally.check(queueDrained, 1)
	longest := time.Second * time.Duration(max(1, f.plan.Workers[0].Tempo)) // a message's delay
	wrong := within(time.Minute+longest+f.patience(), func() []string {
		stats, err := q.Stats(context.Background())
		if err != nil || stats.Delayed+stats.Ready+stats.Leased+stats.Dead > 0 {
			return []string{fmt.Sprintf("%+v %v", stats, err)}
		}
		return nil
	})
	f.drained = len(wrong) == 0
	if !f.drained {
		f.broke(queueDrained, f.healed, now(), "messages are left: "+wrong[0])
	}
}

// checkSubscriptions waits until no subscription is left that only waiters need.
func (f *fleet) checkSubscriptions() {
	f.tally.check(noSubscription, 1)
	wrong := within(cleanupLimit, func() (left []string) {
		for _, s := range f.servers {
			for _, c := range s.Channels() {
				if !strings.HasPrefix(c, "leasewheel_queue_channel") {
					left = append(left, c)
				}
			}
		}
		return left
	})
	for _, c := range wrong {
		f.broke(noSubscription, f.healed, now(), "a subscription of "+short120(c))
	}
}

// closeMembers closes all processes, and finds those that do not end and goroutines of theirs.
func (f *fleet) closeMembers() {
	living := f.living()
	for _, m := range living {
		go m.close(false)
	}
	wrong := within(answerLimit, func() (left []string) {
		for _, m := range f.members {
			select {
			case <-m.closed:
			default:
				left = append(left, fmt.Sprintf("process %d has not closed within %v", m.number, answerLimit))
			}
		}
		return left
	})
	f.tally.check(noGoroutine, len(f.members))
	for _, what := range wrong {
		f.broke(noGoroutine, f.healed, now(), what+"\n"+goroutines())
	}
	if len(wrong) > 0 {
		return
	}
	f.ending.Wait()
	time.Sleep(2 * time.Second) // go-redis probes an address that has refused connections once a second
	synctest.Wait()
}

// goroutines are the stacks of all goroutines.
func goroutines() string {
	stacks := make([]byte, 1<<20)
	return string(stacks[:runtime.Stack(stacks, true)])
}

// checkKeys finds keys without a TTL.
func (f *fleet) checkKeys() {
	counted := map[string]bool{}
	for _, n := range f.plan.Names {
		key := f.plan.Mapping.key(n.Name)
		if n.Kind == permitsKind {
			counted[keysAt(key)[8]] = true
		}
		if n.Kind == semaphoreKind || n.Kind == permitsKind || n.Kind == latchKind {
			counted[key] = true
		}
	}
	for _, s := range f.servers {
		for key, ttl := range s.TTLs() {
			f.tally.check(keysEnd, 1)
			if ttl == 0 && !counted[key] && !strings.HasPrefix(key, "leasewheel_queue_token") {
				f.broke(keysEnd, f.healed, now(), short120(key))
			}
		}
	}
}
