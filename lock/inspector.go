package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// inspector returns the store as a [driver.Inspector], or an error if it is none.
func (l *Locker) inspector() (driver.Inspector, error) {
	if err := context.Cause(l.closed); err != nil {
		return nil, err
	}
	if i, ok := l.store.(driver.Inspector); ok {
		return i, nil
	}
	return nil, fmt.Errorf("%w: this store cannot inspect its locks", driver.ErrUnsupported)
}

// Inspect returns the holders and the waiters of the lock called name. Semaphores and
// latches have Inspect methods of their own, since their data does not show their kind.
func (l *Locker) Inspect(ctx context.Context, name string) (driver.Info, error) {
	return l.inspect(ctx, name, driver.KindMutex)
}

// inspect returns the state of a lock. as is the kind of a semaphore or latch, or
// KindMutex if the kind is unknown.
func (l *Locker) inspect(ctx context.Context, name string, as driver.Kind) (driver.Info, error) {
	ask := func(store driver.Inspector, ctx context.Context, name string) (driver.Info, error) {
		return store.Inspect(ctx, name, as)
	}
	return l.withInspector(ctx, name, ask, l.repeats)
}

// ForceRelease takes the lock called name, of any kind but semaphores, permits and
// latches, from its holder, and wakes its waiters. It returns the state that it ended.
// A value that is not a lock of this format stays; Info.Foreign names its type.
//
// A holder that is alive notices at its next renewal, after a third of its TTL at most.
// Until then two holders may be active, separated only by their fencing tokens. After
// an error that does not match [ErrNotDone], inspect the lock before another try.
func (l *Locker) ForceRelease(ctx context.Context, name string) (driver.Info, error) {
	return l.withInspector(ctx, name, driver.Inspector.ForceRelease, func(err error) bool {
		return l.repeats(err) && errors.Is(err, ErrNotDone)
	})
}

// withInspector sends a request about one lock, and repeats it as again allows.
func (l *Locker) withInspector(ctx context.Context, name string,
	ask func(driver.Inspector, context.Context, string) (driver.Info, error), again func(error) bool,
) (driver.Info, error) {
	if err := driver.ValidateName(name); err != nil {
		return driver.Info{}, err
	}
	store, err := l.inspector()
	if err != nil {
		return driver.Info{}, err
	}
	var info driver.Info
	err = l.withRetry(ctx, l.retryFor(), again, func(ctx context.Context) (err error) {
		bounded, cancel := context.WithTimeout(ctx, l.config.RequestTimeout)
		defer cancel()
		info, err = ask(store, bounded, name)
		return err
	})
	return info, err
}

// List yields every held lock, and every semaphore with expiring permits in use, whose
// name matches pattern: each once, in no order. "*" matches any text, "?" one
// character, "[a-z]" one of a range, "[^a-z]" one outside it; "\" makes a character
// literal. A malformed pattern yields a *[NameError].
//
// Locks are read as the loop proceeds; one that is taken or freed meanwhile may be
// missing. An error, with an empty Info, means that some are missing; the loop may
// continue. A node of a cluster that does not answer is such an error, which names it, and
// delays the locks of no other. The store bounds each request of a list, Redis by 5 s, and
// ctx bounds them all. List keeps 8 bytes, and a map's overhead, for each lock.
func (l *Locker) List(ctx context.Context, pattern string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		p, err := parsePattern(pattern)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		if p.exact {
			if info, err := l.Inspect(ctx, pattern); err != nil || info.Held() {
				yield(info, err)
			}
			return
		}
		store, err := l.inspector()
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		for info, err := range store.List(ctx, p.prefix, p.matches) {
			if !yield(info, err) {
				return
			}
		}
	}
}
