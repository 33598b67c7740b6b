package chaos

import (
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Use is one use of a lock, for benches of other stores, which have faults of their own.
type Use struct {
	Kind  driver.Kind
	Name  string
	Owner string
	// Called is when the acquisition began, Granted when it returned, and Valid the last instant
	// at which the lease was valid.
	Called, Granted, Valid time.Time
	Token                  int64
	// Count is how many permits there are. A use of a latch with a Count closes it, and opens it after
	// Valid; one without waits for it.
	Count int64
	// Released is when the release has returned nil, or zero. Only latches need it: a late request may
	// open one.
	Released time.Time
}

// Check fails t if uses that exclude each other were valid at the same time, if more permits were in
// use than there are, if a token did not grow, or if a closed latch let a waiter pass. No fault is an excuse. It returns the number of checks.
func Check(t testing.TB, uses []Use) (checked int) {
	t.Helper()
	r := newJudge(t, new(plan), newTally())
	h := new(history)
	kinds := map[driver.Kind]kind{driver.KindMutex: mutexKind, driver.KindFair: fairKind, driver.KindRead: readKind, driver.KindWrite: writeKind,
		driver.KindPermit: permitsKind, driver.KindLatch: latchKind}
	at := func(t time.Time) instant { return r.begun.add(t.Sub(uses[0].Called)) }
	for i, u := range uses {
		one := &use{
			op: int64(i), kind: kinds[u.Kind], name: u.Name, owner: u.Owner, token: u.Token, granted: true, count: u.Count,
			call: at(u.Called), back: at(u.Granted), valid: at(u.Valid), releasing: at(u.Valid), released: forever, verb: verbLock,
		}
		if u.Count > 0 {
			one.verb = verbTry
		}
		if !u.Released.IsZero() {
			one.released, one.releaseOK = at(u.Released), true
		}
		h.uses = append(h.uses, one)
	}
	r.checkExclusion(h)
	r.checkTokens(h)
	r.checkPermits(h)
	r.checkLatches(h)
	if n := r.tally.total(); n > 0 {
		t.Errorf("broken promise: %d in %d uses", n, len(uses))
	}
	for _, n := range r.tally.checked {
		checked += n
	}
	if len(uses) > 0 && checked == 0 {
		t.Errorf("nothing was checked in %d uses", len(uses))
	}
	return checked
}
