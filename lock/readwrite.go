package lock

import (
	"context"
	"fmt"
)

// ReadWrite is a handle on one read-write lock by name: any number of readers
// hold it together, or one writer alone. It is cheap, as a [Mutex] is, and its
// methods may be called at the same time.
//
// Both sides are reentrant by context. Whoever holds the write lock may take the
// read lock too, with the context of the write lease, and go on reading after the
// write lock is unlocked: nobody writes in between. The other way round there is
// none: two readers who wait for each other to go would wait for ever, so taking
// the write lock with the context of a read lease returns [ErrUpgrade] at once.
//
// Readers who hold the lock together share one fencing token, which is larger than
// that of every writer before them; a writer's is larger than those of all readers
// before it. A writer that goes on reading keeps its token, and shares it. On Redis,
// a reader who is the first to join the others for a minute has a larger token; see
// FenceTTL in the configuration of package redisstore.
//
// While a holder reads under its own write lock, others stay out until the write
// lock is unlocked, be its lease lost or not: unlock lost leases, too.
type ReadWrite struct {
	locker       *Locker
	name         string
	writersFirst bool
}

// ReadWrite returns a handle on the read-write lock called name. A name that
// [ValidateName] refuses is reported by the methods that acquire. A [Mutex] of the
// same name is another lock, and the two are in each other's way.
func (l *Locker) ReadWrite(name string) *ReadWrite {
	return &ReadWrite{locker: l, name: name}
}

// WritersFirst returns a handle on the same lock whose writers, while they wait,
// keep new readers out. Without it, readers who come and go without a pause can
// starve a writer. Only the writers need to ask for it; readers of every handle
// heed it, those of Redisson do not.
//
// Whoever reads already may take the read lock again meanwhile, but only by the
// context of its lease: without that, it waits for the writer that waits for it.
// A writer whose process dies while it waits keeps readers out for 5 s at most.
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

// refuseUpgrade returns an error if ctx carries the ownership of the read lock:
// its owner would wait for itself.
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
