package contention

import "context"

// Locks is an implementation of locks. Many goroutines call its methods.
type Locks interface {
	// Acquire waits for the lock of that name and returns its release. An error ends the
	// measurement, unless ctx has ended.
	Acquire(ctx context.Context, name string) (release func(context.Context) error, err error)
	// Close frees the locks' resources. No lock is held then.
	Close() error
}
