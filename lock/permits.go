package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Permits is a handle on one semaphore whose permits expire: One and Several hand out
// handles on its permits, whose [Lease] the watchdog renews. A permit returns by itself if
// its holder dies. Permits is cheap, and its methods are safe for concurrent use.
// Acquisitions wait until TrySetPermits has set the number of permits once. A permit is not
// reentrant.
//
// Permits in use end by the clock of the server. If a cluster moves them to a master whose
// clock is ahead, or a replica whose clock is ahead takes over, they end earlier by the
// difference. One of less than two thirds of the TTL is made up for by the next renewal;
// after a larger one, and with [Options.Fixed], another holder may have the permit until
// this one's next renewal.
//
// [Lease.Owner] is the permit's id, 32 hexadecimal digits. [Lease.Token] grows with every
// grant, but a resource can refuse smaller tokens only if there is one permit. A
// [Semaphore] of the same name counts the same permits, but those that it takes do not
// expire.
type Permits struct {
	locker *Locker
	name   string
}

// Permits returns a handle on the semaphore called name.
func (l *Locker) Permits(name string) *Permits { return &Permits{locker: l, name: name} }

// One returns a handle on one permit: its Lock takes a permit, and Unlock returns it.
func (p *Permits) One() *Mutex { return p.Several(1) }

// Several returns a handle on n permits, 1 to [driver.MaxSeveral], which are taken, renewed and
// returned together. [Lease.Owner] ends with "*n" if n is above 1.
func (p *Permits) Several(n int64) *Mutex {
	return &Mutex{locker: p.locker, kind: driver.KindPermit, name: p.name, permits: n}
}

// Name returns the semaphore's name.
func (p *Permits) Name() string { return p.name }

// TrySetPermits sets the number of permits as [Semaphore.TrySetPermits] does.
func (p *Permits) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return p.locker.setPermits(ctx, driver.KindPermit, p.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is deleted after ttl, including
// all permits in use then: their leases are lost. A number that SetPermits, AddPermits or
// TrySetPermits sets afterwards has no end. While it lasts, they do not change its end.
func (p *Permits) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return p.locker.setPermits(ctx, driver.KindPermit, p.name, n, ttl)
}

// SetPermits sets the number of permits, 0 to [driver.MaxCount], including those in use.
func (p *Permits) SetPermits(ctx context.Context, n int64) error {
	if err := validateCount(n, 0); err != nil {
		return err
	}
	_, err := p.locker.count(ctx, driver.KindPermit, p.name, driver.CountSet, n)
	return err
}

// AddPermits changes the number of permits by n, as [Semaphore.AddPermits] does.
func (p *Permits) AddPermits(ctx context.Context, n int64) error {
	return p.locker.addPermits(ctx, driver.KindPermit, p.name, n)
}

// Available returns the number of available permits, including expired ones.
func (p *Permits) Available(ctx context.Context) (int64, error) {
	counted, err := p.locker.count(ctx, driver.KindPermit, p.name, driver.CountRead, 0)
	return counted.Count, err
}

// Inspect returns the number of available permits in Info.Count, the permits in use in
// Info.Holders, and the number of waiting clients.
func (p *Permits) Inspect(ctx context.Context) (driver.Info, error) {
	return p.locker.inspect(ctx, p.name, driver.KindPermit)
}

// newPermitOwner returns the owner of n permits of one lease: the id of the first, and
// "*n" if n is above 1.
func newPermitOwner(n int64) string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	owner := hex.EncodeToString(b[:])
	if n > 1 {
		owner += "*" + strconv.FormatInt(n, 10)
	}
	return owner
}

// severalPermits gives a hold the number of its permits, if it is more than one.
func severalPermits(m *Mutex, a *acquisition) error {
	if m.permits > 1 {
		a.hold.Semaphore.Permits = m.permits
	}
	return nil
}
