package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// Kind is a kind of lock; see [driver.Kind].
type Kind = driver.Kind

// The kinds of lock are described in package driver.
const (
	KindMutex     = driver.KindMutex
	KindFair      = driver.KindFair
	KindRead      = driver.KindRead
	KindWrite     = driver.KindWrite
	KindSemaphore = driver.KindSemaphore
	KindPermit    = driver.KindPermit
	KindLatch     = driver.KindLatch
)

// storeQueues reports whether the store keeps a queue of all waiters for locks of this
// kind, in which each waiter has a place of its own.
func storeQueues(k Kind) bool { return k == KindFair }
