package lock

import (
	"context"
	"fmt"
)

// ReadWrite is a handle on one read-write lock: many readers hold it together, or one
// writer alone. It is cheap, like a [Mutex], and its methods are safe for concurrent use.
//
// Both sides are reentrant by context. The holder of the write lock may take the read
// lock too, with the context of the write lease, and keep it after the write lock is
// unlocked: no other writer gets the lock in between. The reverse is impossible: two
// readers that upgrade would wait for each other for ever. Taking the write lock with the
// context of a read lease therefore returns [ErrUpgrade] at once.
//
// Readers that hold the lock together share one fencing token, which is larger than that
// of every earlier writer. A writer's token is larger than those of all earlier readers.
// A writer that goes on reading keeps its token, and shares it. On Redis, a reader that
// joins other readers has a larger token if none has joined them for a minute; see
// FenceTTL in the configuration of package redisstore.
//
// While a holder reads under its own write lock, others stay out until the write lock is
// unlocked, even if its lease is lost. So unlock lost leases, too.
type ReadWrite struct {
	locker       *Locker
	name         string
	writersFirst bool
}

// ReadWrite returns a handle on the read-write lock called name. If [ValidateName]
// rejects the name, the methods that acquire return its error. A [Mutex] of the same name
// is another lock, but the two exclude each other.
func (l *Locker) ReadWrite(name string) *ReadWrite {
	return &ReadWrite{locker: l, name: name}
}

// WritersFirst returns a handle on the same lock whose waiting writers keep new readers
// out. Without it, a constant flow of readers can starve a writer. Only the writers need
// this handle: it affects readers of every handle, but not those of Redisson.
//
// A current reader may still take the read lock again, but only with the context of its
// lease. With another context it would wait for the writer, which waits for it. A writer
// whose process dies while it waits keeps readers out for 5 s at most.
func (rw *ReadWrite) WritersFirst() *ReadWrite {
	return &ReadWrite{locker: rw.locker, name: rw.name, writersFirst: true}
}

// Name returns the lock's name.
func (rw *ReadWrite) Name() string { return rw.name }

// Read returns a handle on the read side.
func (rw *ReadWrite) Read() *Mutex {
	return &Mutex{locker: rw.locker, kind: KindRead, name: rw.name}
}

// Write returns a handle on the write side.
func (rw *ReadWrite) Write() *Mutex {
	return &Mutex{locker: rw.locker, kind: KindWrite, name: rw.name, writersFirst: rw.writersFirst}
}

// writerIn returns the owner of the write lock that ctx carries, or "".
func writerIn(ctx context.Context, l *Locker, name string) string {
	if w := ownershipIn(ctx, l, KindWrite, name); w != nil && w.held() {
		return w.hold.Owner
	}
	return ""
}

// refuseUpgrade returns an error if ctx carries the ownership of the read lock: the owner
// would wait for itself.
func refuseUpgrade(ctx context.Context, l *Locker, name string) error {
	r := ownershipIn(ctx, l, KindRead, name)
	if r == nil || !r.held() {
		return nil
	}
	if err := r.lease.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", ErrUpgrade, name)
}
