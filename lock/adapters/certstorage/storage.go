package certstorage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/leasewheel/leasewheel/lock"
)

// New returns a storage with the data of s and locks of l, called "certmagic:" and certmagic's
// name, held with options o. All servers need the same data and locks. [lock.Options.MaxHold]
// frees the lock of a server that hangs. A server whose lock was lost goes on with its attempt,
// for certmagic has no context that ends. That costs an order. Its next attempt needs the lock again.
// Lock refuses [lock.Options.Fixed] and Heartbeat: certmagic renews only between attempts.
func New(s certmagic.Storage, l *lock.Locker, o lock.Options) certmagic.Storage {
	return &storage{data{s}, &locks{locker: l, options: o, held: map[string][]*lock.Lease{}}}
}

// storage has the Lock and Unlock of locks: those of data are embedded a level deeper.
type storage struct {
	data
	*locks
}

type data struct{ certmagic.Storage }

var (
	_ certmagic.TryLocker        = (*storage)(nil)
	_ certmagic.LockLeaseRenewer = (*storage)(nil)
)

// locks are held by name: certmagic unlocks with no more than that, from any goroutine.
type locks struct {
	locker  *lock.Locker
	options lock.Options

	mu sync.Mutex
	// held has two leases of a name if one was lost, and granted to this process again, before
	// its holder has called Unlock.
	held map[string][]*lock.Lease
}

// errUnrenewed refuses options by which a lock ends while its holder is at work.
var errUnrenewed = errors.New("certstorage: Options.Fixed and Options.Heartbeat do not suit: certmagic renews a lock only between attempts")

func (l *locks) mutex(name string) (*lock.Mutex, error) {
	if l.options.Fixed || l.options.Heartbeat > 0 {
		return nil, errUnrenewed
	}
	return l.locker.Mutex(lock.EscapeName("certmagic:" + name)).With(l.options), nil
}

// Lock waits for the lock.
func (l *locks) Lock(ctx context.Context, name string) error {
	mutex, err := l.mutex(name)
	if err != nil {
		return err
	}
	lease, err := mutex.Lock(ctx)
	if err != nil {
		return fmt.Errorf("certstorage: %w", err)
	}
	l.keep(name, lease)
	return nil
}

// TryLock reports false if another server has the lock.
func (l *locks) TryLock(ctx context.Context, name string) (bool, error) {
	mutex, err := l.mutex(name)
	if err != nil {
		return false, err
	}
	lease, err := mutex.TryLock(ctx)
	switch {
	case errors.Is(err, lock.ErrNotAcquired):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("certstorage: %w", err)
	}
	l.keep(name, lease)
	return true, nil
}

// Unlock releases the lock. An error that matches [lock.ErrLost] means that another server may
// have worked at the same time, and one that matches [lock.ErrUnavailable] that the release is
// repeated in the background.
func (l *locks) Unlock(ctx context.Context, name string) error {
	lease := l.take(name)
	if lease == nil {
		return fmt.Errorf("certstorage: %q: %w", name, lock.ErrNotHeld)
	}
	if err := lease.Unlock(ctx); err != nil {
		return fmt.Errorf("certstorage: %w", err)
	}
	return nil
}

// RenewLockLease acquires a lock that was lost again: certmagic goes on with its attempts for a month,
// without another Lock. It returns an error while another server has it. The lease needs no
// renewal by hand.
func (l *locks) RenewLockLease(ctx context.Context, name string, _ time.Duration) error {
	l.mu.Lock()
	leases := l.held[name]
	held := slices.ContainsFunc(leases, func(lease *lock.Lease) bool { return lease.Err() == nil })
	l.mu.Unlock()
	if held {
		return nil
	}
	lost := fmt.Errorf("certstorage: %q: %w", name, lock.ErrLost)
	if len(leases) == 0 {
		return lost
	}
	if got, err := l.TryLock(ctx, name); !got {
		return errors.Join(lost, err)
	}
	_ = l.Unlock(ctx, name) // of the lost lease
	return nil
}

func (l *locks) keep(name string, lease *lock.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[name] = append(l.held[name], lease)
}

// take returns the oldest lease of that name, so that the end of a lost one does not release
// its successor: a lock is held for too long rather than not long enough.
func (l *locks) take(name string) *lock.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	leases := l.held[name]
	switch len(leases) {
	case 0:
		return nil
	case 1:
		delete(l.held, name)
	default:
		l.held[name] = leases[1:]
	}
	return leases[0]
}
