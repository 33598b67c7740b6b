//go:build unix

package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/bench/hostclock"
)

// timeline is what a run of the demo saw of its leases, by the host's clock. The goroutine
// that runs the demo fills it; finish completes it.
type timeline struct {
	begin, end hostclock.Instant
	processes  []*lane // by number, from 1
	leases     []*lane // some of the many in one process
	batches    []renewalBatch
	takeovers  []takeover
}

// lane is the life of a process with the lock, or of one of the many leases.
type lane struct {
	name  string
	spans []span
	marks []mark

	kept []*keptHold // the last one is that of the present order
}

// span is a time in a lane. Spans overlap only where a process was frozen.
type span struct {
	kind        spanKind
	from, until hostclock.Instant
	token       int64 // of the lease, with held and lost
}

type spanKind string

const (
	spanAlive   spanKind = "alive"   // the process ran
	spanWaiting spanKind = "waiting" // for the lock
	spanHeld    spanKind = "held"    // the lease was valid
	spanFrozen  spanKind = "frozen"  // between SIGSTOP and SIGCONT
	spanLost    spanKind = "lost"    // the lease was over, and its holder did not know or was dead
)

// mark is an instant in a lane.
type mark struct {
	kind  markKind
	at    hostclock.Instant
	token int64
	note  string // in words, beyond the kind
}

type markKind string

const (
	markRenewed   markKind = "renewed"
	markReported  markKind = "reported" // the loss was reported to the holder
	markRefused   markKind = "refused"
	markAccepted  markKind = "accepted" // a write with an old token, which breaks the promise
	markKilled    markKind = "killed"
	markDeleted   markKind = "deleted"
	markTakenOver markKind = "taken-over" // the lock of a frozen or killed holder
)

// takeover is the grant of a frozen or killed holder's lock to the next one.
type takeover struct {
	from, to *lane
	at       hostclock.Instant
	token    int64
}

// renewalBatch is a request that renewed leases.
type renewalBatch struct {
	sent, answered hostclock.Instant
	renewed        int
}

// keptHold is a hold that a process kept as ordered, in order to be frozen or killed.
type keptHold struct {
	from, until        hostclock.Instant // until: the end of its lease
	token              int64
	stopped, continued hostclock.Instant
	killed             hostclock.Instant
	reported           hostclock.Instant
}

// process returns the lane of a process.
func (t *timeline) process(id int) *lane {
	for len(t.processes) < id {
		t.processes = append(t.processes, &lane{name: fmt.Sprintf("process %d", len(t.processes)+1)})
	}
	return t.processes[id-1]
}

// started notes the start of a process.
func (t *timeline) started(id int, at hostclock.Instant) {
	l := t.process(id)
	l.spans = append(l.spans, span{kind: spanAlive, from: at})
}

// ended notes that a process is gone.
func (t *timeline) ended(id int, at hostclock.Instant) {
	for i := range t.process(id).spans {
		if s := &t.process(id).spans[i]; s.kind == spanAlive {
			s.until = at
		}
	}
}

// note adds an event that a process reported.
func (t *timeline) note(id int, e workerEvent) {
	l := t.process(id)
	switch e.Kind {
	case eventHeld:
		l.waited(e.Asked, e.From)
		l.spans = append(l.spans, span{spanHeld, e.From, e.Until, e.Token})
		if !e.Accepted {
			l.marks = append(l.marks, mark{markRefused, e.Until, e.Token, ""})
		}
	case eventHolding:
		l.waited(e.Asked, e.From)
		l.kept = append(l.kept, &keptHold{from: e.From, until: e.Until, token: e.Token})
	case eventLost:
		l.marks = append(l.marks, mark{markReported, e.At, e.Token, e.Cause})
		if h := l.keptWith(e.Token); h != nil {
			h.reported = e.At
		}
	case eventStale:
		kind := markRefused
		if e.Accepted {
			kind = markAccepted
		}
		l.marks = append(l.marks, mark{kind, e.At, e.Token, ""})
		if h := l.keptWith(e.Token); h != nil {
			h.until = e.Until
		}
	case eventWaited:
		l.waited(e.Asked, e.Until)
	}
}

func (l *lane) waited(from, until hostclock.Instant) {
	l.spans = append(l.spans, span{spanWaiting, from, until, 0})
}

// keptWith returns the hold with this token that the process kept as ordered, or nil.
func (l *lane) keptWith(token int64) *keptHold {
	for _, h := range l.kept {
		if h.token == token {
			return h
		}
	}
	return nil
}

// froze, thawed and killed note the signals that the demo sent to the holder with a token.
func (t *timeline) froze(id int, token int64, at hostclock.Instant) {
	t.process(id).keptWith(token).stopped = at
}

func (t *timeline) thawed(id int, token int64, at hostclock.Instant) {
	t.process(id).keptWith(token).continued = at
}

func (t *timeline) killed(id int, token int64, at hostclock.Instant) {
	l := t.process(id)
	l.keptWith(token).killed = at
	l.marks = append(l.marks, mark{markKilled, at, token, ""})
}

// finish completes the timeline at the end of the run: what has no end by then lasts until
// the end.
func (t *timeline) finish(end hostclock.Instant) {
	t.end = end
	for _, l := range t.processes {
		for _, h := range l.kept {
			t.finishHold(l, h)
		}
	}
	for _, l := range slices.Concat(t.processes, t.leases) {
		for i := range l.spans {
			if s := &l.spans[i]; s.until == 0 || s.until > end {
				s.until = end
			}
		}
		slices.SortStableFunc(l.spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		slices.SortStableFunc(l.marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	}
	slices.SortFunc(t.batches, func(a, b renewalBatch) int { return cmp.Compare(a.sent, b.sent) })
}

// finishHold adds the spans of a hold during which the process was frozen or killed, and
// who has the lock next.
func (t *timeline) finishHold(l *lane, h *keptHold) {
	next := t.nextHolder(h.token)
	over, known := h.until, cmp.Or(h.reported, t.end)
	if h.killed != 0 {
		over, known = h.killed, t.end
		if next != nil {
			known = next.at
		}
	}
	over = min(over, known)
	l.spans = append(l.spans, span{spanHeld, h.from, over, h.token})
	if over < known && (h.stopped != 0 || h.killed != 0) {
		l.spans = append(l.spans, span{spanLost, over, known, h.token})
	}
	if h.stopped != 0 {
		l.spans = append(l.spans, span{spanFrozen, h.stopped, h.continued, h.token})
	}
	if next != nil && (h.stopped != 0 || h.killed != 0) {
		next.from = l
		t.takeovers = append(t.takeovers, *next)
		next.to.marks = append(next.to.marks, mark{markTakenOver, next.at, next.token, "from " + l.name})
	}
}

// nextHolder returns the first grant with a token above this one, or nil.
func (t *timeline) nextHolder(token int64) (next *takeover) {
	for _, l := range t.processes {
		for _, s := range l.spans {
			if s.kind == spanHeld && s.token > token && (next == nil || s.from < next.at) {
				next = &takeover{to: l, at: s.from, token: s.token}
			}
		}
		for _, h := range l.kept {
			if h.token > token && (next == nil || h.from < next.at) {
				next = &takeover{to: l, at: h.from, token: h.token}
			}
		}
	}
	return next
}

// since returns the time from the begin of the demo.
func (t *timeline) since(at hostclock.Instant) time.Duration { return at.Since(t.begin) }

// grants returns when the one lock was granted, in the order of time.
func (t *timeline) grants() (all []hostclock.Instant) {
	for _, l := range t.processes {
		for _, s := range l.spans {
			if s.kind == spanHeld {
				all = append(all, s.from)
			}
		}
	}
	slices.Sort(all)
	return all
}

// occurrence is a fault, or its effect, in words.
type occurrence struct {
	at   hostclock.Instant
	lane string
	text string
}

// occurrences returns the faults and their effects in the order of time.
func (t *timeline) occurrences() (all []occurrence) {
	for _, l := range slices.Concat(t.processes, t.leases) {
		for _, s := range l.spans {
			switch s.kind {
			case spanFrozen:
				all = append(all, occurrence{s.from, l.name, fmt.Sprintf("is frozen (SIGSTOP), holding the lock with token %d", s.token)})
				if s.until < t.end {
					all = append(all, occurrence{s.until, l.name, "continues (SIGCONT)"})
				}
			case spanLost:
				if h := l.keptWith(s.token); h != nil && h.killed == 0 {
					all = append(all, occurrence{s.from, l.name, "has a lease that is over, and was not notified"})
				}
			case spanAlive, spanWaiting, spanHeld:
			}
		}
		for _, m := range l.marks {
			if m.kind != markRenewed {
				all = append(all, occurrence{m.at, l.name, m.words()})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b occurrence) int { return cmp.Compare(a.at, b.at) })
	return all
}

// words describes a mark.
func (m mark) words() string {
	switch m.kind {
	case markRenewed:
		return "is renewed"
	case markReported:
		return "is notified of its loss: " + m.note
	case markRefused:
		return fmt.Sprintf("writes with the old token %d and is refused", m.token)
	case markAccepted:
		return fmt.Sprintf("writes with the old token %d and is not refused", m.token)
	case markKilled:
		return fmt.Sprintf("is killed (SIGKILL), holding the lock with token %d", m.token)
	case markDeleted:
		return "is deleted on the server"
	case markTakenOver:
		return fmt.Sprintf("takes over the lock %s, with token %d", m.note, m.token)
	}
	return string(m.kind)
}
