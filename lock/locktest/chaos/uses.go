package chaos

import (
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Use is one use of a mutex, a fair lock or a read-write lock, for benches of other stores, which
// have faults of their own.
type Use struct {
	Kind  driver.Kind
	Name  string
	Owner string
	// Called is when the acquisition began, Granted when it returned, and Valid the last instant
	// at which the lease was valid.
	Called, Granted, Valid time.Time
	Token                  int64
}

// Check fails t if two uses that exclude each other were valid at the same time, or if a token did
// not grow. No fault is an excuse. It returns the number of checks.
func Check(t testing.TB, uses []Use) (checked int) {
	t.Helper()
	r := newJudge(t, new(plan), newTally())
	h := new(history)
	kinds := map[driver.Kind]kind{driver.KindMutex: mutexKind, driver.KindFair: fairKind, driver.KindRead: readKind, driver.KindWrite: writeKind}
	at := func(t time.Time) instant { return r.begun.add(t.Sub(uses[0].Called)) }
	for i, u := range uses {
		h.uses = append(h.uses, &use{
			op: int64(i), kind: kinds[u.Kind], name: u.Name, owner: u.Owner, token: u.Token, granted: true,
			call: at(u.Called), back: at(u.Granted), valid: at(u.Valid), releasing: forever, released: forever,
		})
	}
	r.checkExclusion(h)
	r.checkTokens(h)
	if n := r.tally.total(); n > 0 {
		t.Errorf("%d promises were broken in %d uses", n, len(uses))
	}
	for _, n := range r.tally.checked {
		checked += n
	}
	if len(uses) > 0 && checked == 0 {
		t.Errorf("nothing was checked in %d uses", len(uses))
	}
	return checked
}
