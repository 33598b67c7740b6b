package contention

import "context"

// Locks is a way to lock. Its methods are called by many goroutines.
type Locks interface {
	// Acquire waits for the lock of that name and returns what gives it back. An
	// error ends the measurement, unless ctx has ended.
	Acquire(ctx context.Context, name string) (release func(context.Context) error, err error)
	// Close ends what the locks need. Nobody holds any.
	Close() error
}
