package contention

import (
	"context"

	"github.com/leasewheel/leasewheel/lock"
)

// Leasewheel is this module's [Locks].
type Leasewheel struct {
	Locker *lock.Locker
	// Fair uses fair locks instead of mutexes.
	Fair bool
	// Options are those of the locks.
	Options lock.Options
}

// Acquire acquires a mutex or a fair lock.
func (l Leasewheel) Acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	handle := l.Locker.Mutex(name)
	if l.Fair {
		handle = l.Locker.Fair(name)
	}
	lease, err := handle.With(l.Options).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

// Close closes the locker.
func (l Leasewheel) Close() error { return l.Locker.Close() }
