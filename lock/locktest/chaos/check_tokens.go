package chaos

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// checkTokens compares each grant's token with those of grants that came before its call.
func (r *judge) checkTokens(h *history) {
	for _, u := range h.uses {
		if !u.granted || u.kind == semaphoreKind || u.kind == latchKind {
			continue
		}
		r.tally.check(tokensBounded, 1)
		if u.token <= 0 || u.token > 1<<53 {
			r.broke(tokensBounded, u.back, u.back, fmt.Sprintf("token %d", u.token), u)
		}
	}
	for _, uses := range h.named(r.plan, mutexKind, electionKind, fairKind, writeKind, readKind, permitsKind) {
		r.growing(uses)
	}
}

func (r *judge) growing(uses []*use) {
	byBack := granted(uses)
	byCall := slices.Clone(byBack)
	slices.SortFunc(byCall, func(a, b *use) int { return cmp.Compare(a.call, b.call) })
	var largest, largestWrite *use // of those granted before the present call
	next := 0
	for _, u := range byCall {
		for ; next < len(byBack) && byBack[next].back < u.call; next++ {
			before := byBack[next]
			if largest == nil || before.token > largest.token {
				largest = before
			}
			if before.kind != readKind && (largestWrite == nil || before.token > largestWrite.token) {
				largestWrite = before
			}
		}
		before := largest
		if u.kind == readKind && largest != nil && largest.kind == readKind && largest.token == u.token {
			before = largestWrite // readers may share one
		}
		if before == nil {
			continue
		}
		r.tally.check(tokensGrow, 1)
		if u.token > before.token {
			continue
		}
		if r.voidsGrowth(before.call, u.back) {
			r.tally.excuse(tokensGrow)
			continue
		}
		r.broke(tokensGrow, u.back, u.back, fmt.Sprintf("token %d came after %d", u.token, before.token), before, u)
	}
}

// voidsGrowth reports whether tokens need not grow from one instant to another: a
// replica was promoted, or the server's clock was set back and the counter was lost, with
// the data or as its time was over.
func (r *judge) voidsGrowth(from, to instant) bool {
	if len(r.journal.between(from, to, ofKind(failover))) > 0 {
		return true
	}
	back, _ := r.steps(r.begun, to)
	if len(r.journal.between(from, to, ofKind(dataLost, hung))) > 0 {
		return back > 0 || r.plan.Site == five
	}
	const life = redisstore.DefaultFenceTTL * 99 / 100 // of a counter, by a clock that is fast
	_, forward := r.steps(from, to)
	return back > life && to.sub(from)+forward > life // otherwise the clock is ahead of the lost counter
}
