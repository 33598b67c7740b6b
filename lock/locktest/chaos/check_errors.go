package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// checkErrors finds failures of a caller that no fault explains.
func (r *judge) checkErrors(h *history) {
	victim := map[string]bool{}
	for _, n := range r.plan.Names {
		victim[n.Name] = victim[n.Name] || n.Victim
	}
	for _, u := range h.uses {
		if u.twice {
			r.broke(calledOnce, u.back, u.back, "a deferred function was called twice", u)
		}
		if u.verb == verbGo {
			r.tally.check(calledOnce, 1)
		}
		if victim[u.name] {
			continue
		}
		r.tally.check(noNeighbour, 1)
		r.checkLate(h, u)
		if u.released != forever && len(r.journal.between(u.releasing, u.released, ofKind(memory))) > 0 {
			r.tally.check(heldReleases, 1)
		}
		for _, f := range u.failures {
			r.checkFailure(h, u, f)
		}
		r.checkLoss(h, u)
	}
}

func (r *judge) checkFailure(h *history, u *use, f failure) {
	rightsTaken := len(r.journal.between(f.from, f.at, func(w *window) bool { return w.Kind == forbidden && w.Name == u.name })) > 0
	switch {
	case f.is("no permission") && !rightsTaken:
		r.broke(noNeighbour, f.from, f.at, "no permission, with all rights for the name", u)
	case f.is("wrong type") || f.is("foreign"):
		r.broke(noNeighbour, f.from, f.at, "a foreign value, although none was written", u)
	case f.is("cross slot"):
		r.broke(noNeighbour, f.from, f.at, "keys of one lock in several slots", u)
	case f.is("out of memory") && f.what != evFail && u.kind != semaphoreKind && u.kind != latchKind:
		r.broke(heldReleases, f.from, f.at, "a release was refused", u)
	case f.what == evFail && u.ttl >= 8*time.Second && u.patient() && !f.is("interrupted") && !f.is("not acquired") && !f.is("closed") && !f.is("name") && r.slowRoundTrips(h, u.process, u.name, f.from, f.at) == 0 && r.undisturbed(h, u, f.from-instant(2*time.Second), f.at):
		r.broke(noNeighbour, f.from, f.at, "nothing explains the failure", u)
	}
}

// patient reports whether the caller waits so long that even a busy machine does not
// explain a failure.
func (u *use) patient() bool {
	return (u.verb == verbLock || u.verb == verbWithin || u.verb == verbGo) && (u.within == 0 || u.within >= 4*time.Second)
}

// checkLoss finds leases that were lost without a reason.
func (r *judge) checkLoss(h *history, u *use) {
	if !u.granted || u.ttl < 2*time.Second || u.fixed {
		return
	}
	r.tally.check(heldSurvives, 1)
	switch u.lost {
	case renewal.Expired, renewal.TakenOver, renewal.Deleted, renewal.Unreachable:
		from := max(u.call, u.releasing.add(-u.ttl))                                // every lease is confirmed within a TTL
		slow := r.slowRoundTrips(h, u.process, u.name, from, u.releasing) > u.ttl/4 // a renewal has more than one request
		if !slow && r.undisturbed(h, u, from-instant(time.Second), u.releasing.add(r.look+50*time.Millisecond), memory) {
			r.broke(heldSurvives, u.back, u.releasing, "lost: "+u.lost.String(), u)
		}
	}
}

// lateLimit is by how much a loss may be noticed after the end of a lease, apart from the time
// in which the process got no processor.
const lateLimit = time.Second

// checkLate finds leases that were not lost at their end.
func (r *judge) checkLate(h *history, u *use) {
	if u.end == 0 {
		return
	}
	r.tally.check(lostInTime, 1)
	if late := u.noticed.sub(u.end) - h.stalls(u.process, u.end, u.noticed); late > lateLimit {
		r.broke(lostInTime, u.end, u.noticed, fmt.Sprintf("Lost was not closed for %v after the end of the lease", late), u)
	}
}

// undisturbed reports whether no fault between two instants explains a failure of u.
// others names further kinds of fault that explain none.
func (r *judge) undisturbed(h *history, u *use, from, to instant, others ...string) bool {
	if h.lagged(u.process, from, to, stallLimit) {
		return false
	}
	return len(r.journal.between(from, to, func(w *window) bool {
		if w.Kind == stopped || w.Kind == killed {
			return w.Process == u.process
		}
		return r.concerns(w, u.name) && !slices.Contains(others, w.Kind)
	})) == 0
}

// stallLimit is for how long a process or a server may get no processor before that
// explains the failure of a request.
const stallLimit = 100 * time.Millisecond

// concerns reports whether a fault may affect requests for a name. The fault of one node of
// a cluster does not affect the names of the others.
func (r *judge) concerns(w *window, name string) bool {
	master, parted := r.masters[name]
	if parted && master >= 0 && w.Node >= 0 && w.Node != master {
		return false
	}
	switch w.Kind {
	case sliced, flushed, foreign, forgery:
		return false
	case garbage, forbidden, hanging:
		return w.Name == name
	case slow:
		return w.Size > 30*time.Millisecond
	}
	return true
}

// slowRoundTrips returns how long the slow round trips of a process took in all between two
// instants: those to the server of a name, or to the slowest where all may be asked.
func (r *judge) slowRoundTrips(h *history, process int, name string, from, to instant) (most time.Duration) {
	master, parted := r.masters[name]
	sums := map[int]time.Duration{}
	for _, e := range h.roundTrips[process] {
		begin := e.At.add(-time.Duration(e.N))
		if e.At >= from && begin <= to && (!parted || master < 0 || e.Node == master) {
			sums[e.Node] += min(e.At, to).sub(max(begin, from))
			most = max(most, sums[e.Node])
		}
	}
	return most
}
