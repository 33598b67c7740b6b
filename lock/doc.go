// Package lock gives distributed locks whose leases are kept alive by a
// watchdog, whose loss is an event, and whose grants carry fencing tokens.
//
// # Meeting the package
//
// A [Locker] binds a [Store] (Redis, by package redisstore) to a watchdog. From
// it come lock handles by name, which are cheap values; a granted lock is a
// [Lease]:
//
//	locker, err := lock.New(store, lock.Config{TTL: 30 * time.Second})
//	lease, err := locker.Mutex("orders:42").Lock(ctx)
//	defer lease.Unlock(ctx)
//
// or, with the lease's life bound to a function:
//
//	err := locker.Mutex("orders:42").Do(ctx, func(ctx context.Context) error { … })
//
// # What a lease promises
//
// A lease is valid until [Lease.Until], computed on this process's monotonic
// clock from the instant before its request was sent. The watchdog renews it
// long before. When the store says that the lease is gone, or when Until passes
// without a renewal, the lease is lost: [Lease.Lost] is closed and
// [Lease.Context] ends with cause [ErrLost]. A lost lease never comes back.
//
// Between a check of the lease and the write that follows it there is always a
// gap in which the process may be paused. Where that matters, hand
// [Lease.Token] to the resource and let the resource refuse smaller tokens: the
// token grows with every grant.
//
// # When the store does not answer
//
// The method says how long it is asked. TryLock, and every method that begins with Try,
// answers within [Config.RequestTimeout]; so does Unlock, and its request is repeated in
// the background. LockWithin lives through an outage that is shorter than its wait,
// Lock through any, as long as its context lives. What was given up with an unknown
// outcome is released in the background until the store has confirmed it.
//
// # Ownership and reentrancy
//
// Go has no thread ids to own a lock with. Here a context owns it: every context
// derived from a lease's context carries the ownership, and locking the same
// name with such a context counts up instead of waiting for itself. Whoever is
// given that context acts as the owner.
//
// # Waiting
//
// Waiters of one name in one process form a queue; only its head asks the
// store. It is woken by the store's message, by the end of the holder's
// remaining lease, and by a slow poll, or a [Retry] of one's own, in case that both
// fail. Waiting costs no goroutine beyond the caller's own. It is bounded by the
// context, by [Mutex.LockWithin], and by [Config.MaxWaiters].
//
// A caller that does not want to wait leaves a function: [Mutex.Go] has it run once
// the lock is granted. Until then it is a place in the same queue, and no goroutine.
//
// Among processes, the heads line up in the store, and the release of a [Mutex]
// grants the lock to the first in line: nobody asks, and nobody is woken in vain.
// Until its first renewal such a lease has a fourth of its TTL, in case that its
// holder has just died. Clients of other libraries, which do not line up, have every
// other turn. Waiters of a
// [Locker.Fair] lock get it in their order of arrival, wherever they are: each has a
// place of its own in the store's queue.
//
// # Semaphores and latches
//
// A [Locker.Semaphore] has permits that nobody owns: whoever holds some may have
// another give them back, and those of a holder that dies are lost. Those of
// [Locker.Permits] are leases, which the watchdog keeps alive like those of locks,
// and which come back by themselves. A [Locker.Latch] is waited for until it was
// counted down to zero.
//
// # Several locks at once
//
// [All] takes several locks together, all or none, in the order of their names, so
// that nobody waits in a circle. Their [MultiLease] ends when any of them is lost.
//
// # The end
//
// [Locker.Shutdown] grants nothing more, waits for the Unlocks, and releases what is left
// when its context ends. [Locker.Close] ends at once and leaves the locks to their
// holders, or to their TTL.
//
// # Looking into locks
//
// [Locker.Inspect] tells who holds a lock, since when, and who waits in its queue;
// [Locker.List] finds locks by pattern; [Locker.ForceRelease] takes one away from a
// holder that is stuck, who is told at its next renewal.
package lock
