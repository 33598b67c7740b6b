package lock

import (
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// ReadWrite is a handle on one read-write lock: many readers hold it together, or one
// writer alone. It is cheap, and its methods are safe for concurrent use.
//
// Both sides are reentrant by context. The holder of the write lock may take the read
// lock too, and keep it after the write lock is unlocked. The reverse returns
// [ErrUpgrade]: two readers that upgrade would wait for each other. While a holder
// reads under its own write lock, others stay out until the write lock is unlocked,
// even if its lease is lost; so unlock lost leases, too.
//
// Readers that hold the lock together share one fencing token, larger than that of
// every earlier writer. A writer's token is larger than all before, and a writer that
// goes on reading keeps it. On Redis, a reader that joins others has a larger token if
// none has joined for a minute; see FenceTTL in package redisstore.
type ReadWrite struct {
	locker       *Locker
	name         string
	writersFirst bool
}

// ReadWrite returns a handle on the read-write lock called name. A [Mutex] of the same
// name is another lock, but the two exclude each other.
func (l *Locker) ReadWrite(name string) *ReadWrite {
	return &ReadWrite{locker: l, name: name}
}

// WritersFirst returns a handle on the same lock whose waiting writers keep new readers
// out, except those of Redisson; without it, a flow of readers can starve a writer.
// Only writers need this handle. A current reader may take the read lock again only
// with the context of its lease: with another one it would wait for the writer, which waits
// for it. A writer whose process dies while it waits keeps readers out for 5 s at most.
func (rw *ReadWrite) WritersFirst() *ReadWrite {
	return &ReadWrite{locker: rw.locker, name: rw.name, writersFirst: true}
}

// Name returns the lock's name.
func (rw *ReadWrite) Name() string { return rw.name }

// Read returns a handle on the read side.
func (rw *ReadWrite) Read() *Mutex {
	return &Mutex{locker: rw.locker, kind: driver.KindRead, name: rw.name}
}

// Write returns a handle on the write side.
func (rw *ReadWrite) Write() *Mutex {
	return &Mutex{locker: rw.locker, kind: driver.KindWrite, name: rw.name, writersFirst: rw.writersFirst}
}

// readUnderWriter lets a read of the write lock's holder join that lock.
func readUnderWriter(m *Mutex, a *acquisition) error {
	if w := ownershipIn(a.ctx, m.locker, driver.KindWrite, m.name); w != nil && w.held() {
		a.hold.ReadWrite.Under = w.lease.Owner()
	}
	return nil
}

// refuseUpgrade returns an error if the context carries the ownership of the read lock: the
// owner would wait for itself.
func refuseUpgrade(m *Mutex, a *acquisition) error {
	r := ownershipIn(a.ctx, m.locker, driver.KindRead, m.name)
	if r == nil || !r.held() {
		return nil
	}
	if err := r.lease.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", ErrUpgrade, m.name)
}
