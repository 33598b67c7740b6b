package chaos

import (
	"fmt"
	"time"
)

// checkQueue compares the accepted messages with the handled ones.
func (r *judge) checkQueue(h *history) {
	for _, m := range h.messages {
		r.checkContexts(h, m)
		if m.accepted == forever {
			continue
		}
		r.tally.check(messageKept, 1)
		if len(r.journal.between(m.put, forever, ofKind(dataLost, failover, hung))) > 0 {
			r.tally.excuse(messageKept)
			continue
		}
		if r.drained && len(m.runs) == 0 {
			r.broke(messageKept, m.put, m.accepted, fmt.Sprintf("message %s was accepted at %s, and no worker ever got it", m.id, m.accepted.of(r.begun)))
		}
	}
}

// checkContexts compares the end of a handler's context with the beginning of the next
// handling. A context ends by a timer, which a busy machine may run late; so only delays
// beyond the lag of that process's timers count.
func (r *judge) checkContexts(h *history, m *message) {
	if !r.strict {
		return
	}
	for i, next := range m.runs {
		for _, before := range m.runs[:i] {
			r.tally.check(contextEnds, 1)
			if before.open < next.back.add(15*time.Millisecond) {
				continue
			}
			disturbed := h.lagged(before.process, next.back.add(-time.Second), before.open.add(time.Second), 0) ||
				len(r.journal.between(next.back.add(-time.Second), before.open, ofKind(stopped))) > 0
			if disturbed || len(r.voidsExclusion(before.call, next.back)) > 0 {
				r.tally.excuse(contextEnds)
				continue
			}
			r.broke(contextEnds, next.back, before.open, fmt.Sprintf("a handler's context was not ended %v after another had begun", before.open.sub(next.back)), before, next)
		}
	}
}

// lagged reports whether a process's timers were late between two instants, by more than
// most.
func (h *history) lagged(process int, from, to instant, most time.Duration) bool {
	for _, lag := range h.lags[process] {
		if lag.At >= from && lag.At.add(-time.Duration(lag.N)) <= to && lag.N > int64(most) {
			return true
		}
	}
	return false
}

// stalls returns for how long in all a process's timers were late between two instants.
func (h *history) stalls(process int, from, to instant) (sum time.Duration) {
	for _, lag := range h.lags[process] {
		if begin := lag.At.add(-time.Duration(lag.N)); lag.At >= from && begin <= to {
			sum += min(lag.At, to).sub(max(begin, from))
		}
	}
	return sum
}

// checkLatches checks that no waiter passed a latch while it was certainly closed.
func (r *judge) checkLatches(h *history) {
	for _, uses := range h.named(r.plan, latchKind) {
		var doubtful []*use // whose late request may open the latch
		for _, u := range uses {
			if u.verb == verbTry && (len(u.failures) > 0 && u.failures[0].text != "" || u.released == forever || !u.releaseOK && u.granted) {
				doubtful = append(doubtful, u)
			}
		}
		for _, closed := range uses {
			if closed.verb != verbTry || !closed.granted {
				continue
			}
			for _, wait := range uses {
				if wait.verb != verbLock || wait.call < closed.back || wait.call > closed.releasing {
					continue
				}
				r.tally.check(latchCloses, 1)
				if !wait.granted || wait.back > closed.releasing {
					continue
				}
				if len(r.voidsExclusion(closed.call, wait.back)) > 0 || len(r.journal.between(r.begun, wait.back, ofKind(duplicates))) > 0 || anyBefore(doubtful, wait.back) {
					r.tally.excuse(latchCloses)
					continue
				}
				r.broke(latchCloses, wait.back, wait.back, "a waiter passed a latch that was closed", closed, wait)
			}
		}
	}
}

func anyBefore(uses []*use, at instant) bool {
	for _, u := range uses {
		if u.call < at {
			return true
		}
	}
	return false
}
