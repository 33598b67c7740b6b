package chaos

import (
	"cmp"
	"fmt"
	"slices"
)

// voidsExclusion returns the faults that, by the README, void exclusion between leases
// requested at from or later and granted up to to. They are a loss of the server's data,
// the promotion of a replica, and a server clock that was set forward.
func (r *judge) voidsExclusion(from, to instant) []*window {
	return r.journal.between(from, to, func(w *window) bool {
		return w.Kind == dataLost || w.Kind == failover || w.Kind == hung || w.Kind == stepped && w.Size > 0
	})
}

// checkExclusion compares every two leases of a lock.
func (r *judge) checkExclusion(h *history) {
	for _, uses := range h.named(r.plan, mutexKind, fairKind, electionKind) {
		r.apart(oneHolder, granted(uses), func(a, b *use) bool { return true })
	}
	for _, uses := range h.named(r.plan, readKind, writeKind) {
		r.apart(readersApart, granted(uses), func(a, b *use) bool { return a.kind == writeKind || b.kind == writeKind })
	}
	for _, m := range h.messages {
		slices.SortFunc(m.runs, func(a, b *use) int { return cmp.Compare(a.back, b.back) })
		r.apart(messageApart, m.runs, func(a, b *use) bool { return true })
	}
}

// granted returns the granted uses, in the order of their grants.
func granted(uses []*use) (all []*use) {
	for _, u := range uses {
		if u.granted {
			all = append(all, u)
		}
	}
	slices.SortFunc(all, func(a, b *use) int { return cmp.Compare(a.back, b.back) })
	return all
}

// apart checks that no two uses that exclude each other were valid at the same time.
func (r *judge) apart(promise string, uses []*use, exclude func(a, b *use) bool) {
	var open []*use
	for _, b := range uses {
		r.tally.check(promise, 1)
		open = slices.DeleteFunc(open, func(a *use) bool { return a.valid <= b.back })
		for _, a := range open {
			if b.valid <= b.back || !exclude(a, b) {
				continue
			}
			if len(r.voidsExclusion(min(a.asked(), b.asked()), b.back)) > 0 {
				r.tally.excuse(promise)
				continue
			}
			r.broke(promise, b.back, min(a.valid, b.valid), fmt.Sprintf("two were valid together for %v", min(a.valid, b.valid).sub(b.back)), a, b)
		}
		open = append(open, b)
	}
}

// checkPermits counts the permits that are in use together.
func (r *judge) checkPermits(h *history) {
	for name, uses := range h.named(r.plan, permitsKind, semaphoreKind) {
		if _, refused := h.refused[name]; refused {
			continue
		}
		var open []*use
		for _, u := range granted(uses) {
			r.tally.check(permitsExist, 1)
			open = slices.DeleteFunc(open, func(o *use) bool { return o.valid <= u.back })
			if u.valid > u.back || u.count == 0 {
				open = append(open, u)
			}
			if int64(len(open)) <= u.count {
				continue
			}
			from := u.call
			for _, o := range open {
				from = min(from, o.call)
			}
			if u.kind == semaphoreKind {
				from = r.begun // permits in use when the data were lost are returned twice
			}
			if len(r.voidsExclusion(from, u.back)) > 0 {
				r.tally.excuse(permitsExist)
				continue
			}
			r.broke(permitsExist, u.back, u.back, fmt.Sprintf("%d in use of %d", len(open), u.count), open...)
			open = open[:len(open)-1] // one false grant is one break
		}
	}
}
