package lock

import (
	"fmt"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// ReadWrite is a handle on one read-write lock: many readers hold it together, or one writer
// alone. Both sides are reentrant by context. The holder of the write lock may take the read
// lock too, and keep it after the write lock is unlocked; until then others stay out, even if
// its lease is lost, so unlock lost leases, too. The reverse returns [ErrUpgrade]: two readers
// that upgrade would wait for each other. Readers that hold the lock together share one
// fencing token, and a writer that goes on reading keeps its own.
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

// WritersFirst returns a handle on the same lock whose waiting writers keep new readers out,
// except those of Redisson; without it, a flow of readers can starve a writer. A current
// reader may then lock again only with its lease's context.
func (rw *ReadWrite) WritersFirst() *ReadWrite {
	return &ReadWrite{locker: rw.locker, name: rw.name, writersFirst: true}
}

// Read returns a handle on the read side.
func (rw *ReadWrite) Read() *Mutex {
	return &Mutex{locker: rw.locker, kind: driver.KindRead, name: rw.name, complete: readUnderWriter}
}

// Write returns a handle on the write side.
func (rw *ReadWrite) Write() *Mutex {
	return &Mutex{locker: rw.locker, kind: driver.KindWrite, name: rw.name, complete: func(a *acquisition) error {
		if a.wait && rw.writersFirst {
			a.hold.ReadWrite.BlockReaders = placeTTL
		}
		return refuseUpgrade(a)
	}}
}

// readUnderWriter lets a read of the write lock's holder join that lock.
func readUnderWriter(a *acquisition) error {
	if w := ownershipIn(a.ctx, a.locker, driver.KindWrite, a.hold.Name); w != nil && w.held() {
		a.hold.ReadWrite.Under = w.lease.Owner()
	}
	return nil
}

// refuseUpgrade returns an error if the context carries the ownership of the read lock: the
// owner would wait for itself.
func refuseUpgrade(a *acquisition) error {
	r := ownershipIn(a.ctx, a.locker, driver.KindRead, a.hold.Name)
	if r == nil || !r.held() {
		return nil
	}
	if err := r.lease.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", ErrUpgrade, a.hold.Name)
}
