package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/renewal"
)

// use is one use of a lock, from the call to the return of the release, or one handling
// of a message.
type use struct {
	process int
	op      int64
	kind    kind
	name    string
	verb    string
	ttl     time.Duration
	within  time.Duration
	count   int64
	fixed   bool

	call instant
	back instant // when the acquisition returned; forever if it has not
	// granted: the lease was valid from back, and surely up to valid.
	granted bool
	valid   instant
	token   int64
	owner   string
	lost    renewal.Cause
	end     instant // of the lease, if its driver waited for the loss; else 0
	noticed instant // when it was lost, or the driver stopped waiting

	releasing instant // forever if not
	released  instant
	releaseOK bool

	failures []failure // of the acquisition, and of releases of it and of further holds
	ran      bool      // it was granted, whether or not its lease was observed
	twice    bool
	open     instant // when the context of a handler was last seen alive
	isDead   bool    // its process was killed before its end
	died     instant
}

// failure is an error that a driver received.
type failure struct {
	what     string // evFail, evReleased or evInner
	from, at instant
	errors   []string
	text     string
}

func (f failure) is(class string) bool { return slices.Contains(f.errors, class) }

// asked is the earliest instant at which the granted request can have been sent: the
// call, or a TTL before the acquisition returned, if that is later. A waiter's grant may
// come long after its call, and a grant's reply long after the grant.
func (u *use) asked() instant {
	valid := u.back - instant(u.ttl)
	if u.kind == queueKind {
		return valid // the claim of a message is not reported
	}
	return max(u.call, valid)
}

// diedWithPermit reports whether a permit without an owner may be lost with its process: it
// was not surely returned. What a process repeats in the background ends with it, also after an
// acquisition whose last attempt has surely failed, since an earlier one may have succeeded.
func (u *use) diedWithPermit() bool { return u.isDead && !u.releaseOK }

// in describes a use, with instants in seconds since the round began.
func (u *use) in(begun instant) string {
	var b strings.Builder
	fmt.Fprintf(&b, "process %d op %d: %s %s %q", u.process, u.op, u.verb, u.kind, short(u.name))
	if u.ttl > 0 {
		fmt.Fprintf(&b, " ttl %v", u.ttl)
	}
	fmt.Fprintf(&b, ", called %s", u.call.of(begun))
	switch {
	case u.granted:
		fmt.Fprintf(&b, ", granted %s to %s token %d, valid to %s", u.back.of(begun), u.owner, u.token, u.valid.of(begun))
		if u.lost != 0 {
			fmt.Fprintf(&b, " (lost: %v)", u.lost)
		}
		if u.released != forever {
			fmt.Fprintf(&b, ", released %s", u.released.of(begun))
		}
	case u.back == forever:
		b.WriteString(", never returned")
	}
	for _, f := range u.failures {
		fmt.Fprintf(&b, ", %s %s: %s", f.what, f.at.of(begun), short120(f.text))
	}
	if u.isDead {
		b.WriteString(", killed")
	}
	return b.String()
}

// of returns an instant in seconds since the round began.
func (i instant) of(begun instant) string {
	if i == forever {
		return "never"
	}
	return fmt.Sprintf("%.4fs", i.sub(begun).Seconds())
}

func short120(s string) string {
	if len(s) > 240 {
		return s[:237] + "..."
	}
	return s
}

// message is the life of one message of the queue.
type message struct {
	id       string
	put      instant
	accepted instant // forever if not
	failed   bool    // the Put returned an error
	handled  []instant
	runs     []*use
}

// history holds the reports of a round's processes.
type history struct {
	uses       []*use // of locks, permits, semaphores and latches
	messages   map[string]*message
	refused    map[string]string // names that are not accepted, with the reason
	lags       map[int][]event   // by process
	roundTrips map[int][]event   // slow ones, by process
	clients    map[string]int    // process by client id
	processes  []*reports
}

// collect builds a history from the processes' events.
func collect(all []*reports) *history {
	h := &history{messages: map[string]*message{}, refused: map[string]string{}, lags: map[int][]event{}, roundTrips: map[int][]event{}, clients: map[string]int{}, processes: all}
	for _, p := range all {
		p.mu.Lock()
		h.add(p)
		p.mu.Unlock()
	}
	slices.SortStableFunc(h.uses, func(a, b *use) int { return cmp.Compare(a.call, b.call) })
	return h
}

func (h *history) message(id string) *message {
	m := h.messages[id]
	if m == nil {
		m = &message{id: id, put: forever, accepted: forever}
		h.messages[id] = m
	}
	return m
}

func (h *history) add(p *reports) {
	if p.client != "" {
		h.clients[p.client] = p.number
	}
	uses, puts := map[int64]*use{}, map[int64]*message{}
	for _, e := range p.events {
		u, m := uses[e.Op], puts[e.Op]
		switch e.What {
		case evCall:
			u = &use{process: p.number, op: e.Op, kind: e.Kind, name: e.Name, verb: e.Verb, ttl: e.TTL, within: e.Within, count: e.N, fixed: e.Fixed,
				call: e.At, back: forever, releasing: forever, released: forever, isDead: p.isDead, died: p.died}
			uses[e.Op] = u
			h.uses = append(h.uses, u)
		case evPut:
			m = h.message(e.Name)
			m.put, puts[e.Op] = e.At, m
		case evAccepted:
			m.accepted = e.At
		case evBegin:
			u = &use{process: p.number, op: e.Op, kind: queueKind, name: e.Name, verb: "handle", ttl: e.TTL, call: e.At, back: e.At, granted: true,
				token: e.Token, valid: e.At, releasing: forever, released: forever, isDead: p.isDead, died: p.died}
			uses[e.Op] = u
			run := h.message(e.Name)
			run.runs = append(run.runs, u)
		case evHandled:
			run := h.message(e.Name)
			run.handled = append(run.handled, e.At)
		case evRefused:
			h.refused[e.Name] = e.Text
		case evLag:
			h.lags[p.number] = append(h.lags[p.number], e)
		case evRoundTrip:
			h.roundTrips[p.number] = append(h.roundTrips[p.number], e)
		}
		if e.What == evFail && m != nil {
			m.failed = true
			h.uses = append(h.uses, &use{process: p.number, op: e.Op, kind: queueKind, name: e.Name, verb: "put", call: m.put, back: e.At, releasing: forever, released: forever,
				failures: []failure{{evFail, m.put, e.At, e.Errors, e.Text}}, isDead: p.isDead, died: p.died})
		}
		if u == nil {
			continue
		}
		switch e.What {
		case evGot:
			u.granted, u.back, u.valid, u.token, u.owner = true, e.At, e.At, e.Token, e.Owner
		case evFail:
			if u.granted {
				u.failures = append(u.failures, failure{evFail, u.call, e.At, e.Errors, e.Text})
				continue
			}
			u.back = e.At
			u.failures = append(u.failures, failure{evFail, u.call, e.At, e.Errors, e.Text})
		case evValid:
			u.valid = max(u.valid, e.At)
		case evEnd, evStopped:
			u.valid, u.lost = max(u.valid, e.At), e.Lost
			u.releasing = max(u.valid, e.At)
		case evInner, evReleased:
			u.ran = true
			if e.What == evReleased {
				u.released, u.releaseOK = e.At, len(e.Errors) == 0
			}
			if len(e.Errors) > 0 {
				u.failures = append(u.failures, failure{e.What, u.releasing, e.At, e.Errors, e.Text})
			}
		case evContext:
			u.open = e.At
		case evLost:
			u.end, u.noticed = instant(e.N), e.At
		case evTwice:
			u.twice = true
		}
	}
}

// named returns the uses of some kinds by name, except those of victims.
func (h *history) named(p *plan, kinds ...kind) map[string][]*use {
	victim := map[string]bool{}
	for _, n := range p.Names {
		victim[n.Name] = n.Victim
	}
	by := map[string][]*use{}
	for _, u := range h.uses {
		if slices.Contains(kinds, u.kind) && !victim[u.name] {
			by[u.name] = append(by[u.name], u)
		}
	}
	return by
}
