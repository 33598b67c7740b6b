package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Inspector is a [Store] that can tell about the locks it has, and take them away.
// Like those of Store, its methods try everything once.
type Inspector interface {
	// Inspect tells about one lock. Of a lock that nobody holds it tells that. as is
	// KindSemaphore, KindPermit or KindLatch for a name that is known to be one;
	// otherwise KindMutex, and the data tell of which kind it is.
	Inspect(ctx context.Context, name string, as Kind) (Info, error)

	// List tells about every lock that somebody holds and whose name begins with
	// prefix and is wanted, each once. A lock that is taken or freed meanwhile may
	// be missing. An error comes with an Info without a name and means that locks
	// may be missing; if the caller goes on, so does List, with what is left.
	List(ctx context.Context, prefix string, wanted func(name string) bool) iter.Seq2[Info, error]

	// ForceRelease frees a lock, whoever holds it and however often, and wakes its
	// waiters. It tells about the lock as it was before, in the same instant. A
	// value that is not a lock of this format is left alone.
	ForceRelease(ctx context.Context, name string) (Info, error)
}

// inspector returns the store's part that looks into locks.
func (l *Locker) inspector() (Inspector, error) {
	if err := context.Cause(l.closed); err != nil {
		return nil, err
	}
	if i, ok := l.store.(Inspector); ok {
		return i, nil
	}
	return nil, fmt.Errorf("lock: this store does not tell about its locks: %w", errors.ErrUnsupported)
}

// Inspect tells who holds the lock called name, and who waits for it. It takes
// no lock and disturbs none. Semaphores and latches have Inspect methods of their
// own: their data do not tell that they are any.
func (l *Locker) Inspect(ctx context.Context, name string) (Info, error) {
	return l.inspect(ctx, name, KindMutex)
}

// inspect tells about a lock that is known to be a semaphore, or the like, or of
// which nothing is known.
func (l *Locker) inspect(ctx context.Context, name string, as Kind) (Info, error) {
	ask := func(store Inspector, ctx context.Context, name string) (Info, error) {
		return store.Inspect(ctx, name, as)
	}
	return l.examine(ctx, name, ask, transient)
}

// ForceRelease takes the lock called name away from whoever holds it, of whatever
// kind it is, and wakes its waiters. It returns what it has ended: Info.Held
// reports false if nobody held the lock. A value that is not a lock of this format
// stays, and Info.Foreign tells of it; so do semaphores and latches, which nobody
// holds, and permits that expire, which come back by themselves.
//
// It is for locks whose holder is known to be stuck. A holder that is alive is told
// of its loss at its next renewal, a third of its TTL later at most; until then it
// and the next holder may be at work side by side, and only fencing tokens keep
// them apart. After an error other than one that matches [ErrNotDone], the lock may
// have been released: look before you try again, for it may have a new holder.
func (l *Locker) ForceRelease(ctx context.Context, name string) (Info, error) {
	return l.examine(ctx, name, Inspector.ForceRelease, func(err error) bool {
		return transient(err) && errors.Is(err, ErrNotDone)
	})
}

// examine asks the store about one lock, again while that is worth it.
func (l *Locker) examine(ctx context.Context, name string,
	ask func(Inspector, context.Context, string) (Info, error), again func(error) bool,
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

// List tells about every lock, and every semaphore with expiring permits, that
// somebody holds and whose name matches pattern, in no order, each once. In a pattern "*" stands for any text, "?" for any one
// character, "[a-z]" for one of a range, "[^a-z]" for one of none, and "\" takes
// its meaning from the character behind it; a malformed pattern yields a
// *[PatternError]. A pattern without any of these is a name, and is looked up.
//
// Locks are read as the loop goes on, so it may run as long as there are locks. One
// that is taken or freed meanwhile may be missing. An error means that some may be
// missing, because a server of several did not answer, say; its Info is empty. The
// loop may go on after it with what is left. What List keeps in memory is 8 bytes,
// and a map's overhead, for each lock.
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
