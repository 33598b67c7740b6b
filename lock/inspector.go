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
	return nil, fmt.Errorf("lock: this store cannot inspect its locks: %w", errors.ErrUnsupported)
}

// Inspect returns the holders and the waiters of the lock called name. It does not affect
// the lock. Semaphores and latches have their own Inspect methods, since their data does
// not show their kind.
func (l *Locker) Inspect(ctx context.Context, name string) (Info, error) {
	return l.inspect(ctx, name, KindMutex)
}

// inspect returns the state of a lock. as is the kind of a semaphore or latch, or
// KindMutex if the kind is unknown.
func (l *Locker) inspect(ctx context.Context, name string, as Kind) (Info, error) {
	ask := func(store driver.Inspector, ctx context.Context, name string) (Info, error) {
		return store.Inspect(ctx, name, as)
	}
	return l.withInspector(ctx, name, ask, transient)
}

// ForceRelease releases the lock called name, of any kind, and wakes its waiters. It
// returns the state that it ended: Info.Held reports false if the lock was free. A
// value that is not a lock of this format stays, and Info.Foreign names its type.
// Semaphores and latches, which have no holders, and expiring permits, which return by
// themselves, stay too.
//
// Use it for a lock whose holder is known to be stuck. A holder that is alive notices the
// loss at its next renewal, after a third of its TTL at most. Until then it and the next
// holder may be active at the same time, and only fencing tokens separate them. After an
// error that does not match [ErrNotDone], the lock may have been released: inspect it
// before another try, because it may have a new holder.
func (l *Locker) ForceRelease(ctx context.Context, name string) (Info, error) {
	return l.withInspector(ctx, name, driver.Inspector.ForceRelease, func(err error) bool {
		return transient(err) && errors.Is(err, ErrNotDone)
	})
}

// withInspector sends a request about one lock, and repeats it as again allows.
func (l *Locker) withInspector(ctx context.Context, name string,
	ask func(driver.Inspector, context.Context, string) (Info, error), again func(error) bool,
) (Info, error) {
	if err := ValidateName(name); err != nil {
		return Info{}, err
	}
	store, err := l.inspector()
	if err != nil {
		return Info{}, err
	}
	var info Info
	err = l.withRetry(ctx, l.config.RetryFor, again, func() (err error) {
		bounded, cancel := context.WithTimeout(ctx, l.config.RequestTimeout)
		defer cancel()
		info, err = ask(store, bounded, name)
		return err
	})
	return info, err
}

// List yields every held lock, and every semaphore with expiring permits in use, whose
// name matches pattern. It yields each once, in no order. In a pattern "*" matches any
// text, "?" any one character, "[a-z]" one character of a range, "[^a-z]" one outside it.
// "\" makes the next character literal. A malformed pattern yields a *[PatternError]. A
// pattern without any of these is a name, and is looked up.
//
// Locks are read as the loop proceeds, so it may run as long as there are locks. A lock
// that is taken or freed in the meantime may be missing. An error means that some locks
// may be missing, for example because one of several servers did not answer; its Info is
// empty. The loop may continue after it with the rest. List keeps 8 bytes, and a map's
// overhead, for each lock in memory.
func (l *Locker) List(ctx context.Context, pattern string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		p, err := parsePattern(pattern)
		if err != nil {
			yield(Info{}, err)
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
			yield(Info{}, err)
			return
		}
		for info, err := range store.List(ctx, p.prefix, p.matches) {
			if !yield(info, err) {
				return
			}
		}
	}
}
