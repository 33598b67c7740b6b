package lock

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Permits is a handle on one semaphore whose permits expire: One and Several hand out handles
// on its permits, whose [Lease] the watchdog renews. A permit returns by itself if its holder
// dies. Acquisitions wait until TrySetPermits has set the number of permits once.
// [Lease.Owner] is the permit's id; a resource can refuse smaller tokens only if there is one
// permit. A [Semaphore] of the name counts the same permits, but those that it takes do not
// expire. docs/choosing.md has what a server whose clock is ahead does.
type Permits struct{ permitCount }

// Permits returns a handle on the semaphore called name.
func (l *Locker) Permits(name string) *Permits {
	return &Permits{permitCount{counted{l, driver.KindPermit, name}}}
}

// One returns a handle on one permit.
func (p *Permits) One() *Mutex { return p.Several(1) }

// Several returns a handle on n permits, 1 to [driver.MaxSeveral], which are taken, renewed
// and returned together.
func (p *Permits) Several(n int64) *Mutex {
	return &Mutex{locker: p.locker, kind: driver.KindPermit, name: p.name, complete: func(a *acquisition) error {
		err := inRange("count", n, 1, driver.MaxSeveral)
		if err == nil && n > 1 {
			a.hold.Owner, a.hold.Semaphore.Permits = p.locker.newPermitOwner(n), n
		}
		return err
	}}
}

// SetPermits sets the number of permits, including those in use.
func (p *Permits) SetPermits(ctx context.Context, n int64) error {
	if err := validateCount(n, 0); err != nil {
		return err
	}
	_, err := p.count(ctx, driver.Count{Op: driver.CountSet, N: n})
	return err
}
