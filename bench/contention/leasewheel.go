package contention

import (
	"context"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// Leasewheel is the module's own way to lock.
type Leasewheel struct {
	Locker *lock.Locker
	// Fair takes the lock that is granted in the order of arrival.
	Fair bool
	// Options are how the lock is held.
	Options lock.Options
}

// closeLimit bounds the end of a locker that nobody holds anything of.
const closeLimit = 10 * time.Second

// Acquire takes a mutex or a fair lock.
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
func (l Leasewheel) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	return l.Locker.Close(ctx)
}
