package lock

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// Permits is a handle on one semaphore by name whose permits expire: each is a
// [Lease] that the watchdog keeps alive, and that comes back by itself when its
// holder dies. It is cheap, as a [Mutex] is, and its methods may be called at the
// same time.
//
// Somebody gives it a number of permits once, by TrySetPermits; until then, whoever
// acquires waits. A permit is not reentrant: whoever acquires with the context of
// one gets another.
//
// [Lease.Token] grows with every grant, so that it tells grants apart and which came
// later. But the latest of several holders is not the only rightful one: a resource
// can refuse smaller tokens only where there is one permit. [Lease.Owner] is the
// permit's id, 32 hexadecimal digits.
//
// A [Semaphore] of the same name counts the same permits, and takes them for good.
type Permits struct{ one Mutex }

// Permits returns a handle on the semaphore called name. A name that [ValidateName]
// refuses is reported by its methods.
func (l *Locker) Permits(name string) *Permits {
	return &Permits{one: Mutex{locker: l, kind: KindPermit, name: name}}
}

// With returns a handle on the same semaphore with these options for its leases
// instead. With [Options.Fixed], a permit comes back after its TTL, whoever lives.
func (p *Permits) With(o Options) *Permits { return &Permits{one: *p.one.With(o)} }

// MaxSeveral is the largest number of permits of one lease; see [Permits.Several].
const MaxSeveral = 100

// Several returns a handle on the same semaphore whose leases are of n permits each, 1 to
// [MaxSeveral]: they are taken together, all or none, kept alive together, and given back
// together. [Lease.Owner] ends with "*n" then; on the server each permit has an id of its
// own.
func (p *Permits) Several(n int64) *Permits {
	several := *p
	several.one.several = n
	if n < 1 {
		several.one.several = -1 // reported by the methods that acquire
	}
	return &several
}

// Name returns the semaphore's name.
func (p *Permits) Name() string { return p.one.name }

// TrySetPermits gives a semaphore that is not in use yet n permits, 0 to [MaxCount],
// and reports whether it was the one to do so.
func (p *Permits) TrySetPermits(ctx context.Context, n int64) (bool, error) {
	return p.one.locker.setPermits(ctx, KindPermit, p.one.name, n, 0)
}

// TrySetPermitsFor is TrySetPermits for a semaphore that is gone after ttl, with whatever
// permits are in use then.
func (p *Permits) TrySetPermitsFor(ctx context.Context, n int64, ttl time.Duration) (bool, error) {
	if err := validateLife(ttl); err != nil {
		return false, err
	}
	return p.one.locker.setPermits(ctx, KindPermit, p.one.name, n, ttl)
}

// SetPermits sets the number of permits, 0 to [MaxCount], those in use included. If it
// is smaller than before, permits that are in use are not available again when they are
// given back.
func (p *Permits) SetPermits(ctx context.Context, n int64) error {
	if err := validateCount(n, 0); err != nil {
		return err
	}
	_, err := p.one.locker.count(ctx, KindPermit, p.one.name, CountSet, n)
	return err
}

// AddPermits changes the number of permits by n, as [Semaphore.AddPermits] does.
func (p *Permits) AddPermits(ctx context.Context, n int64) error {
	return p.one.locker.addPermits(ctx, KindPermit, p.one.name, n)
}

// Available returns how many permits are available, those included that have
// expired. It is negative after AddPermits has taken away permits that were in use.
func (p *Permits) Available(ctx context.Context) (int64, error) {
	counted, err := p.one.locker.count(ctx, KindPermit, p.one.name, CountRead, 0)
	return counted.Count, err
}

// Inspect tells how many permits are available, in Info.Count, the permits in use,
// which are Info.Holders, and for how long each of them lasts unless it is renewed, and
// how many clients wait for one. See [Semaphore.Inspect].
func (p *Permits) Inspect(ctx context.Context) (Info, error) {
	return p.one.locker.inspect(ctx, p.one.name, KindPermit)
}

// Acquire takes a permit and waits for it as [Mutex.Lock] waits for the lock. The
// lease's Unlock gives it back.
func (p *Permits) Acquire(ctx context.Context) (*Lease, error) { return p.one.Lock(ctx) }

// TryAcquire takes a permit if one is available, and otherwise returns a
// *[NotAcquiredError] at once, within [Config.RequestTimeout].
func (p *Permits) TryAcquire(ctx context.Context) (*Lease, error) { return p.one.TryLock(ctx) }

// AcquireWithin takes a permit and waits for it at most wait, as
// [Mutex.LockWithin] does.
func (p *Permits) AcquireWithin(ctx context.Context, wait time.Duration) (*Lease, error) {
	return p.one.LockWithin(ctx, wait)
}

// Do calls f while it holds a permit, as [Mutex.Do] does.
func (p *Permits) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return p.one.Do(ctx, f)
}

// Go calls f while it holds a permit, once one is granted, as [Mutex.Go] does.
func (p *Permits) Go(ctx context.Context, f func(ctx context.Context) error) (*Deferred, error) {
	return p.one.Go(ctx, f)
}

// newPermitOwner returns the owner of n permits that are one lease: the id of the first,
// and "*n" for several.
func newPermitOwner(n int64) string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	owner := hex.EncodeToString(b[:])
	if n > 1 {
		owner += "*" + strconv.FormatInt(n, 10)
	}
	return owner
}

// permitsOf returns of how many permits an owner is.
func permitsOf(owner string) int64 {
	_, number, _ := strings.Cut(owner, "*")
	n, _ := strconv.ParseInt(number, 10, 64)
	return max(n, 1)
}
