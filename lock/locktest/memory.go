package locktest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/memstore"
)

// New returns a locker on a [Memory] of its own. Both end with t. A config that [lock.New]
// refuses fails t.
func New(t TB, c lock.Config) *lock.Locker {
	t.Helper()
	return StartMemory(t).Locker(t, c)
}

// Memory has locks in the test's process, and outages as a server has. Unlike [Server] it runs
// no script and has no client of Redis, so it is cheaper by two orders of magnitude. Its clock is
// the test's: inside a synctest bubble it is the bubble's. Its methods are safe for concurrent
// use.
type Memory struct {
	store   *memstore.Store
	freezer freezer

	mu         sync.Mutex
	connected  context.Context // guarded by mu, like disconnect; ended by it, and replaced by Reconnect
	disconnect context.CancelFunc
}

// StartMemory returns a memory without locks, which ends with t.
func StartMemory(t TB) *Memory {
	t.Helper()
	m := &Memory{store: memstore.New()}
	m.connected, m.disconnect = context.WithCancel(context.Background())
	t.Cleanup(func() { _ = m.store.Close() })
	return m
}

// Locker returns a locker on the memory. It ends with t. Each is a client of its own, as if in
// another process. A config that [lock.New] refuses fails t.
func (m *Memory) Locker(t TB, c lock.Config) *lock.Locker {
	t.Helper()
	return newLocker(t, m.Store(t), c)
}

// newLocker returns a locker that ends with t.
func newLocker(t TB, store lock.Store, c lock.Config) *lock.Locker {
	t.Helper()
	locker, err := lock.New(store, c)
	if err != nil {
		t.Fatalf("locktest: %v", err)
	}
	t.Cleanup(func() {
		if err := closing(locker.Close); err != nil {
			t.Errorf("locktest: %v", err)
		}
		_ = locker.Shutdown(context.Background()) // waits for deferred functions
	})
	return locker
}

// closing closes something, and returns the error. It is none of a test's that a server did not
// answer meanwhile.
func closing(f func() error) error {
	if err := f(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// Store returns a store on the memory. It ends with t.
func (m *Memory) Store(t TB) *memstore.Store {
	t.Helper()
	store := m.store.Open()
	store.Intercept(m.outage)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// outage has a request wait, or fail, while there is an outage.
func (m *Memory) outage(ctx context.Context) error {
	m.mu.Lock()
	connected := m.connected
	m.mu.Unlock()
	thawed := m.freezer.await(ctx.Done(), connected.Done())
	switch {
	case connected.Err() != nil:
		return fmt.Errorf("%w: %w: %w", lock.ErrUnavailable, lock.ErrNotDone, errDisconnected)
	case !thawed:
		return fmt.Errorf("%w: %w", lock.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

var errDisconnected = errors.New("locktest: disconnected")

// Freeze delays every request until Thaw, up to its deadline, while TTLs run on.
func (m *Memory) Freeze() { m.freezer.freeze() }

// Thaw ends a Freeze. Requests of callers that have given up change nothing.
func (m *Memory) Thaw() { m.freezer.thaw() }

// Disconnect fails every request until Reconnect, at once, while TTLs run on; those that wait in a
// Freeze, too.
func (m *Memory) Disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disconnect()
}

// Reconnect ends a Disconnect.
func (m *Memory) Reconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.connected.Err() != nil {
		m.connected, m.disconnect = context.WithCancel(context.Background())
	}
}

// Delete deletes the lock called name, as an administrator or a loss of data would. No message
// is sent; the holder detects it at its next renewal.
func (m *Memory) Delete(name string) {
	m.store.DeleteFunc(func(of string) bool { return of == name })
}

// DeleteAll deletes every lock.
func (m *Memory) DeleteAll() { m.store.DeleteFunc(func(string) bool { return true }) }
