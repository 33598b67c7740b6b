package chaos

import (
	"fmt"
	"testing"
	"time"
)

// judge checks the history of a round.
type judge struct {
	t       testing.TB
	plan    *plan
	tally   *tally
	told    map[string]int // breaks of each promise; guarded by the tally's mutex
	journal journal
	begun   instant
	healed  instant // when the last fault had ended
	drained bool
	strict  bool           // also check what a busy machine's timers may break
	masters map[string]int // of a cluster: the node that has a name's keys
	look    time.Duration  // after which a driver looks at its lease again, at most
	repeat  string         // the flags that repeat the round
}

func newJudge(t testing.TB, p *plan, tally *tally) *judge {
	return &judge{t: t, plan: p, tally: tally, told: map[string]int{}, masters: map[string]int{}, begun: now(),
		repeat: fmt.Sprintf("-seed %d -round %d", p.Seed, p.Round)}
}

// check checks the history of a round that has ended.
func (r *judge) check(h *history, end instant) {
	r.checkExclusion(h)
	r.checkTokens(h)
	r.checkPermits(h)
	r.checkQueue(h)
	r.checkLatches(h)
	r.checkErrors(h)
	r.checkIdle(h, end)
	r.checkModel(h)
}

// The limits of the quiet period. None of them measures speed: each is many times as long
// as the operation takes.
const (
	cleanupLimit = 25 * time.Second // until abandoned requests are cleaned up: tries are 10 s apart at most
	orphanLimit  = 18 * time.Second // for which a lock may have no holder, for the same reason
	answerLimit  = 30 * time.Second // until a process has done a local operation
)

// freeLimit is for how long a free lock may be refused. Dead waiters keep their places for longer by as
// much as the server's clock was set back.
func (r *judge) freeLimit() time.Duration {
	back, _ := r.steps(0, forever)
	return 12*time.Second + back
}

// patience is how long a waiter may have to wait for leases that are never released: two
// of the longest, and the time by which the server's clock was set back.
func (r *judge) patience() time.Duration {
	longest := time.Second
	for _, w := range r.plan.Workers {
		for _, d := range w.Drivers {
			longest = max(longest, d.TTL)
		}
	}
	back, _ := r.steps(0, forever)
	return 2*longest + 15*time.Second + back
}

// steps returns by how much the clock of a server was set between two instants, in all: the most for
// each direction.
func (r *judge) steps(from, to instant) (back, forward time.Duration) {
	type sums struct{ back, forward time.Duration }
	of := map[int]sums{} // by node
	for _, w := range r.journal.between(from, to, ofKind(stepped)) {
		s := of[w.Node]
		of[w.Node] = sums{s.back - min(w.Size, 0), s.forward + max(w.Size, 0)}
		back, forward = max(back, of[w.Node].back), max(forward, of[w.Node].forward)
	}
	return back, forward
}

// mayKeep reports whether a lock may have no actual holder for its TTL. Three reasons are
// known: a repeated request was granted once more; a promoted replica has a grant but not
// its release; the server's clock was set back, so that a late request seems in time.
func (r *judge) mayKeep() bool {
	return len(r.journal.between(0, forever, func(w *window) bool {
		return w.Kind == duplicates || w.Kind == failover || w.Kind == stepped && w.Size < 0
	})) > 0
}
