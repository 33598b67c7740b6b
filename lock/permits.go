package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Permits is a handle on one semaphore whose permits expire: each is a [Lease] that the
// watchdog renews, and returns by itself if its holder dies. It is cheap, and its
// methods are safe for concurrent use. Acquisitions wait until TrySetPermits has set
// the number of permits once. A permit is not reentrant.
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
type Permits struct{ one Mutex }

// Permits returns a handle on the semaphore called name.
func (l *Locker) Permits(name string) *Permits {
	return &Permits{one: Mutex{locker: l, kind: KindPermit, name: name}}
}

// With returns a handle on the same semaphore that uses these options for its leases.
// With [Options.Fixed], a permit returns after its TTL.
func (p *Permits) With(o Options) *Permits { return &Permits{one: *p.one.With(o)} }

// Several returns a handle whose leases have n permits each, 1 to [MaxSeveral], taken,
// renewed and released together. Their [Lease.Owner] ends with "*n".
func (p *Permits) Several(n int64) *Permits {
	several := *p
	several.one.several = n
	if n < 1 {
		several.one.several = -1 // the methods that acquire return the error
	}
	return &several
}

// Name returns the semaphore's name.
func (p *Permits) Name() string { return p.one.name }

// TrySetPermits sets the number of permits as [Semaphore.TrySetPermits] does.
func (p *Permits) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return p.one.locker.setPermits(ctx, KindPermit, p.one.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is deleted after ttl, including
// all permits in use then: their leases are lost. A number that SetPermits, AddPermits or
// TrySetPermits sets afterwards has no end. While it lasts, they do not change its end.
func (p *Permits) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return p.one.locker.setPermits(ctx, KindPermit, p.one.name, n, ttl)
}

// SetPermits sets the number of permits, 0 to [MaxCount], including those in use.
func (p *Permits) SetPermits(ctx context.Context, n int64) error {
	if err := validateCount(n, 0); err != nil {
		return err
	}
	_, err := p.one.locker.count(ctx, KindPermit, p.one.name, driver.CountSet, n)
	return err
}

// AddPermits changes the number of permits by n, as [Semaphore.AddPermits] does.
func (p *Permits) AddPermits(ctx context.Context, n int64) error {
	return p.one.locker.addPermits(ctx, KindPermit, p.one.name, n)
}

// Available returns the number of available permits, including expired ones.
func (p *Permits) Available(ctx context.Context) (int64, error) {
	counted, err := p.one.locker.count(ctx, KindPermit, p.one.name, driver.CountRead, 0)
	return counted.Count, err
}

// Inspect returns the number of available permits in Info.Count, the permits in use in
// Info.Holders, and the number of waiting clients.
func (p *Permits) Inspect(ctx context.Context) (Info, error) {
	return p.one.locker.inspect(ctx, p.one.name, KindPermit)
}

// Acquire takes a permit and waits for it as [Mutex.Lock] does. Unlock releases it.
func (p *Permits) Acquire(ctx context.Context) (*Lease, error) { return p.one.Lock(ctx) }

// TryAcquire takes a permit as [Mutex.TryLock] takes a lock.
func (p *Permits) TryAcquire(ctx context.Context) (*Lease, error) { return p.one.TryLock(ctx) }

// AcquireWithin takes a permit as [Mutex.LockWithin] takes a lock.
func (p *Permits) AcquireWithin(ctx context.Context, wait time.Duration) (*Lease, error) {
	return p.one.LockWithin(ctx, wait)
}

// Do calls f while it holds a permit, as [Mutex.Do] does.
func (p *Permits) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return p.one.Do(ctx, f)
}

// TryDo calls f while it holds a permit, as [Mutex.TryDo] does.
func (p *Permits) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return p.one.TryDo(ctx, f)
}

// DoWithin calls f while it holds a permit, as [Mutex.DoWithin] does.
func (p *Permits) DoWithin(ctx context.Context, wait time.Duration, f func(ctx context.Context) error) error {
	return p.one.DoWithin(ctx, wait, f)
}

// Go calls f while it holds a permit, once one is granted, as [Mutex.Go] does.
func (p *Permits) Go(ctx context.Context, f func(ctx context.Context) error) (*Deferred, error) {
	return p.one.Go(ctx, f)
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
	if m.several > 1 {
		a.hold.Semaphore.Permits = m.several
	}
	return nil
}
