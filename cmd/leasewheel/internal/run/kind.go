//go:build unix

package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// kindFlags choose the kind of lock that run takes.
type kindFlags struct {
	read, write, fair bool
	permits           int64 // 0: no semaphore
}

func (k *kindFlags) register(flags *pflag.FlagSet) {
	flags.BoolVarP(&k.read, "read", "s", false, "take NAME as a reader: beside other readers, but no writer (also --shared)")
	flags.BoolVarP(&k.write, "write", "x", false, "take NAME as its only writer, beside no reader (also --exclusive)")
	flags.BoolVar(&k.fair, "fair", false, "take the lock in the order of arrival, among all that use --fair")
	flags.Int64Var(&k.permits, "permits", 0, "let at most `N` hold NAME at once: a semaphore, which the first run creates")
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		switch name { // flock(1)'s names
		case "shared":
			name = "read"
		case "exclusive":
			name = "write"
		}
		return pflag.NormalizedName(name)
	})
}

// validate returns an error for flags that exclude each other.
func (k *kindFlags) validate(permitsSet bool) error {
	given := 0
	for _, set := range []bool{k.read, k.write, k.fair, permitsSet} {
		if set {
			given++
		}
	}
	switch {
	case given > 1:
		return errors.New("--read, --write, --fair and --permits exclude each other")
	case permitsSet && (k.permits < 1 || k.permits > driver.MaxCount):
		return fmt.Errorf("--permits %d: accepted are 1 to %d", k.permits, driver.MaxCount)
	}
	return nil
}

// kind is the kind of lock that the flags name.
func (k *kindFlags) kind() driver.Kind {
	switch {
	case k.read:
		return driver.KindRead
	case k.write:
		return driver.KindWrite
	case k.fair:
		return driver.KindFair
	case k.permits > 0:
		return driver.KindPermit
	}
	return driver.KindMutex
}

// acquirer acquires one lock, and waits for it at most wait.
type acquirer func(ctx context.Context, wait time.Duration) (*lock.Lease, error)

// acquirer returns the way to the lock called name, of the kind that the flags name.
func (k *kindFlags) acquirer(l *lock.Locker, name string, o lock.Options) acquirer {
	var m *lock.Mutex
	switch k.kind() {
	case driver.KindRead:
		m = l.ReadWrite(name).Read()
	case driver.KindWrite:
		m = l.ReadWrite(name).Write()
	case driver.KindFair:
		m = l.Fair(name)
	case driver.KindPermit:
		return (&permitHandle{l, l.Permits(name), o, name, k.permits}).acquire
	default:
		m = l.Mutex(name)
	}
	return func(ctx context.Context, wait time.Duration) (*lock.Lease, error) {
		return m.With(o).MaxWait(wait).Lock(ctx)
	}
}

// permitHandle acquires one permit of a semaphore with a number of permits.
type permitHandle struct {
	locker  *lock.Locker
	permits *lock.Permits
	options lock.Options
	name    string
	number  int64
}

// checkEvery is how often a waiting run looks for its semaphore.
const checkEvery = 5 * time.Second

// acquire takes a permit, and waits for it at most wait. A semaphore that disappears
// meanwhile, with its server's data, is created again: nothing else would end the wait.
func (h *permitHandle) acquire(ctx context.Context, wait time.Duration) (*lock.Lease, error) {
	begin := time.Now()
	if err := h.create(ctx); err != nil {
		return nil, err
	}
	for {
		left := wait - time.Since(begin)
		lease, err := h.permits.One().With(h.options).MaxWait(min(left, checkEvery)).Lock(ctx)
		if left <= checkEvery || ctx.Err() != nil || !errors.Is(err, lock.ErrNotAcquired) {
			return lease, err
		}
		if _, err := h.permits.TrySetPermits(ctx, h.number); err != nil {
			return nil, err
		}
	}
}

// create creates the semaphore if there is none, and otherwise checks its number of
// permits.
func (h *permitHandle) create(ctx context.Context) error {
	created, err := h.permits.TrySetPermits(ctx, h.number)
	if err != nil || created {
		return err
	}
	return h.checkNumber(ctx)
}

// permitsError reports a semaphore that has another number of permits than --permits.
type permitsError struct {
	name          string
	number, wants int64
}

func (e *permitsError) Error() string {
	return fmt.Sprintf("semaphore %s has %d permits, not %d: all of its clients must name the same number; for another number choose another name; or, on Redis, delete its key while nothing holds a permit",
		output.Quoted(e.name), e.number, e.wants)
}

// checkNumber compares the semaphore's number of permits with the flag's, if this user may
// inspect it.
func (h *permitHandle) checkNumber(ctx context.Context) error {
	info, err := h.locker.Inspect(ctx, h.name, driver.KindPermit)
	if err != nil {
		return nil //nolint:nilerr // the acquisition meets it too, unless only inspection is forbidden
	}
	if number := info.Count + info.HolderCount; info.Counted && number != h.number {
		return &permitsError{h.name, number, h.number}
	}
	return nil
}
