//go:build linux

package chaos

import (
	"fmt"
)

// checkQueue compares what was accepted with what was handled.
func (r *round) checkQueue(h *history) {
	for _, m := range h.messages {
		if m.accepted == forever {
			continue
		}
		r.tally.check(messageKept, 1)
		if len(r.journal.between(m.put, forever, ofKind(dataLost, failover, hung))) > 0 {
			r.tally.excuse(messageKept)
			continue
		}
		if r.drained && len(m.runs) == 0 {
			r.broke(messageKept, m.put, m.accepted, fmt.Sprintf("message %s was accepted at %s, and nobody has it", m.id, m.accepted.clockTime()))
		}
	}
}

// checkLatches checks that nobody passed a latch while it was closed for certain.
func (r *round) checkLatches(h *history) {
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
				if wait.verb != verbLock || !wait.granted || wait.call < closed.back || wait.back > closed.releasing {
					continue
				}
				r.tally.check(latchCloses, 1)
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
