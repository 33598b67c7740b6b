package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
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

// Inspect returns the state of the lock called name: its holders, its waiters, and the count
// of a semaphore or latch. Redis' data does not show the kind of a count: kind is that of a
// semaphore, permit or latch, otherwise KindMutex.
func (l *Locker) Inspect(ctx context.Context, name string, kind driver.Kind) (driver.Info, error) {
	if int(kind) >= len(kinds) {
		return driver.Info{}, fmt.Errorf("%w: number %d", driver.ErrUnsupported, kind)
	}
	ask := func(store driver.Inspector, ctx context.Context, name string) (driver.Info, error) {
		return store.Inspect(ctx, name, kind)
	}
	return l.withInspector(ctx, name, ask, l.repeats)
}

// ForceRelease takes the lock called name from its holder, and wakes its waiters; it is for no
// semaphore and no latch. It returns the state that it ended. A holder that is alive notices
// at its next renewal, after a third of its TTL at most; until then only fencing tokens
// separate two holders.
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
	err = backoff.Retry(ctx, l.closed, l.retryFor(), again, func(ctx context.Context) (err error) {
		bounded, cancel := context.WithTimeout(ctx, l.config.RequestTimeout)
		defer cancel()
		info, err = ask(store, bounded, name)
		return err
	})
	return info, err
}

// List yields every held lock, and every semaphore with expiring permits in use, whose name
// matches pattern: each once, in no order. "*" matches any text, "?" one character, "[a-z]"
// one of a range, "[^a-z]" one outside it; "\" makes a character literal. Locks are read as
// the loop proceeds. An error, with an empty Info, means that some are missing, such as those
// of a cluster's node; the loop may continue.
func (l *Locker) List(ctx context.Context, pattern string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		p, err := parsePattern(pattern)
		if err != nil {
			yield(driver.Info{}, err)
			return
		}
		if p.exact {
			if info, err := l.Inspect(ctx, pattern, driver.KindMutex); err != nil || info.Held() {
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
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("%w (last error: %w)", context.Cause(ctx), err)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}
