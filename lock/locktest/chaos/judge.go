package chaos

import (
	"fmt"
	"testing"
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
	repeat  string         // the flags that repeat the round
}

func newJudge(t testing.TB, p *plan, tally *tally) *judge {
	return &judge{t: t, plan: p, tally: tally, told: map[string]int{}, masters: map[string]int{}, begun: now(),
		repeat: fmt.Sprintf("-seed %d -round %d", p.Seed, p.Round)}
}

// check checks a history once its round is over.
func (r *judge) check(h *history) {
	r.checkExclusion(h)
	r.checkTokens(h)
	r.checkPermits(h)
	r.checkQueue(h)
	r.checkLatches(h)
	r.checkErrors(h)
	r.checkIdle(h)
	r.checkModel(h)
}
