package lock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Permits is a handle on one semaphore whose permits expire: One and Several hand out handles
// on its permits, whose [Lease] the watchdog renews. A permit returns by itself if its holder
// dies. Acquisitions wait until TrySetPermits has set the number of permits once.
// [Lease.Owner] is the permit's id; a resource can refuse smaller tokens only if there is one
// permit. A [Semaphore] of the name counts the same permits, but those that it takes do not
// expire. docs/choosing.md has what a server whose clock is ahead does.
type Permits struct {
	locker *Locker
	name   string
}

// Permits returns a handle on the semaphore called name.
func (l *Locker) Permits(name string) *Permits { return &Permits{locker: l, name: name} }

// One returns a handle on one permit.
func (p *Permits) One() *Mutex { return p.Several(1) }

// Several returns a handle on n permits, 1 to [driver.MaxSeveral], which are taken, renewed
// and returned together.
func (p *Permits) Several(n int64) *Mutex {
	return &Mutex{locker: p.locker, kind: driver.KindPermit, name: p.name, complete: func(a *acquisition) error {
		if n > 1 {
			a.hold.Owner, a.hold.Semaphore.Permits = p.locker.newPermitOwner(n), n
		}
		return inRange("count", n, 1, driver.MaxSeveral)
	}}
}

// TrySetPermits is [Semaphore.TrySetPermits].
func (p *Permits) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return p.locker.setPermits(ctx, driver.KindPermit, p.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is deleted after ttl, including all
// permits in use then: their leases are lost. While it lasts, a change of the number does not
// change its end.
func (p *Permits) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return p.locker.setPermits(ctx, driver.KindPermit, p.name, n, ttl)
}

// SetPermits sets the number of permits, including those in use.
func (p *Permits) SetPermits(ctx context.Context, n int64) error {
	if err := validateCount(n, 0); err != nil {
		return err
	}
	_, err := p.locker.count(ctx, driver.KindPermit, p.name, driver.CountSet, n)
	return err
}

// AddPermits is [Semaphore.AddPermits].
func (p *Permits) AddPermits(ctx context.Context, n int64) error {
	return p.locker.addPermits(ctx, driver.KindPermit, p.name, n)
}

// Available returns the number of available permits, including expired ones.
func (p *Permits) Available(ctx context.Context) (int64, error) {
	counted, err := p.locker.count(ctx, driver.KindPermit, p.name, driver.CountRead, 0)
	return counted.Count, err
}

// newPermitOwner returns the owner of n permits of one lease: the id of the first, and
// "*n" if n is above 1. An id is the client's, with the permit's number as its last six bytes,
// so that inspection finds the client: the format has no room for it beside the id. The ids of one
// lease differ in the last four.
func (l *Locker) newPermitOwner(n int64) string {
	several := uint64(max(n, 1)) //nolint:gosec // at most driver.MaxSeveral
	last := l.permits.Add(several)
	for uint32(last) < uint32(several) { //nolint:gosec // the last four bytes; they would begin again within the lease
		last = l.permits.Add(several)
	}
	first := (last - several + 1) & (1<<48 - 1)
	owner := strings.ReplaceAll(l.client.ID, "-", "")[:20] + fmt.Sprintf("%012x", first)
	if n > 1 {
		owner += "*" + strconv.FormatInt(n, 10)
	}
	return owner
}
