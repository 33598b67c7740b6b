// Package lock provides distributed locks with renewed leases and fencing tokens. A
// watchdog renews each lease; the holder is notified when its lease is lost.
//
// # Quick start
//
// A [Locker] joins a [driver.Store] (package redisstore, on Redis) to a watchdog. Its
// methods return lock handles by name, which are cheap values. A granted lock is a
// [Lease]:
//
//	locker, err := lock.New(store, lock.Config{TTL: 30 * time.Second})
//	lease, err := locker.Mutex("orders:42").Lock(ctx)
//	defer lease.Unlock(ctx)
//
// [Mutex.Do] binds the lease to a function:
//
//	err := locker.Mutex("orders:42").Do(ctx, func(ctx context.Context) error { … })
//
// Programs need this package and a store: redisstore, or quorum for several independent
// Redis servers. Package [driver] is for authors of stores; the types of it that a program
// meets, such as [Info] and [Kind], have names here.
//
// # What a lease guarantees
//
// A lease is valid until [Lease.Until]. That instant is on this process's monotonic clock
// and is counted from just before the request was sent. The watchdog renews the lease
// long before. The lease is lost when the store no longer has it, or when Until passes
// without a renewal. Then [Lease.Lost] is closed and [Lease.Context] ends with cause
// [ErrLost]. A lost lease never becomes valid again.
//
// A process may be paused between a check of the lease and the write that follows. Where
// that matters, pass [Lease.Token] to the resource, and let the resource refuse smaller
// tokens: the token grows with every grant.
//
// # When the store does not answer
//
// The method decides how long requests are repeated. TryLock, and every method whose name
// begins with Try, returns within [Config.RequestTimeout]. So does Unlock, but its
// request is repeated in the background. LockWithin survives an outage shorter than its
// wait. Lock survives any outage, as long as its context lives. If the outcome of an
// abandoned request is unknown, the hold is released in the background until the store
// confirms it.
//
// # Ownership and reentrancy
//
// Go has no thread ids, so the owner of a lock is a context. Every context derived from a
// lease's context carries the ownership. Locking the same name with such a context raises
// the hold count instead of waiting. Code that receives this context acts as the owner.
//
// # Waiting
//
// The waiters of one name in one process form a queue, and only its head sends requests
// to the store. The head is woken by the store's message, by the end of the holder's
// lease, or by a slow poll (or a [Retry] policy) if both fail. Waiting needs no goroutine
// besides the caller's. The context, [Mutex.LockWithin] and [Config.MaxWaiters] bound it.
//
// [Mutex.Go] does not block: it runs a function once the lock is granted. Until then the
// function is an entry in the same queue and has no goroutine.
//
// The heads of different processes wait in a queue in the store. The release of a [Mutex]
// grants the lock to the first of them, without another request or a wasted wake-up.
// Until its first renewal such a lease has only a fourth of its TTL (or 1 s if that is
// more), in case the new holder has just died. Clients of other libraries do not use this
// queue; they get every other turn. A [Locker.Fair] lock is granted in order of arrival
// across all processes, because each of its waiters has its own place in the store's
// queue.
//
// # Semaphores and latches
//
// The permits of a [Locker.Semaphore] have no owner: any client may release them, and the
// permits of a holder that dies are lost. The permits of [Locker.Permits] are leases. The
// watchdog renews them like locks, and they return by themselves if their holder dies.
// The waiters of a [Locker.Latch] continue once its count has reached zero.
//
// # Several locks at once
//
// [All] takes several locks together, all or none, in the order of their names, which
// prevents a deadlock. The resulting [MultiLease] ends when any of the locks is lost.
//
// # Shutting down
//
// [Locker.Shutdown] stops granting, waits for the Unlocks, and releases the remaining
// locks when its context ends. [Locker.Close] stops at once and leaves the locks to their
// holders, or to their TTL.
//
// # Inspecting locks
//
// [Locker.Inspect] returns the holders of a lock, since when they hold it, and the
// waiters in its queue. [Locker.List] finds locks by pattern. [Locker.ForceRelease] takes
// a lock away from a stuck holder, which notices at its next renewal.
package lock
