// Package lock provides distributed locks with renewed leases and fencing tokens. A
// watchdog renews each lease; the holder is notified when its lease is lost.
//
// # Quick start
//
// A [Locker] joins a store to a watchdog: package redisstore on Redis, or quorum on several
// independent servers. (Package [driver] is for authors of stores.) Its methods return
// handles by name, which are cheap values. A granted lock is a [Lease]:
//
//	locker, err := lock.New(store, lock.Config{TTL: 30 * time.Second})
//	lease, err := locker.Mutex("orders:42").Lock(ctx)
//	defer lease.Unlock(ctx)
//
// [Mutex.Do] binds the lease to a function:
//
//	err := locker.Mutex("orders:42").Do(ctx, func(ctx context.Context) error { … })
//
// # Leases
//
// A lease is valid until [Lease.Until], on this process's monotonic clock, counted from
// just before the request was sent. The watchdog renews it long before. The lease is lost
// when the store no longer has it, or when Until passes without a renewal; it never
// becomes valid again. A process may be paused between a check of the lease and the write
// that follows. Where that matters, let the resource refuse a [Lease.Token] smaller than
// the largest it has seen.
//
// The owner of a lock is a context, since Go has no thread ids: every context derived from
// [Lease.Context] carries the ownership. Locking the same name with it raises the hold
// count instead of waiting.
//
// # When the store does not answer
//
// TryLock, every method whose name begins with Try, and Unlock return within
// [Config.RequestTimeout]; the release of Unlock is then repeated in the background.
// LockWithin survives an outage shorter than its wait, Lock any, as long as its context
// lives. If the outcome of an abandoned request is unknown, the hold is released in the
// background until the store confirms it.
//
// # Waiting
//
// The waiters of one name in one process form a queue, whose head alone sends requests. It
// is woken by the store's message, by the end of the holder's lease, or by a slow poll (or
// a [Retry]) if both fail. The heads of different processes wait in a queue in the store.
// The release of a [Mutex] grants it to the first of them, until its first renewal for a
// fourth of its TTL, at least 1 s, in case that process has died. Clients of other
// libraries get every other turn. [Locker.Fair] keeps the order across all processes.
//
// # Ground rules of waiting
//
// The code of waiting is acquire.go, request.go, waiter.go, queue.go and run.go, in this
// order. An acquisition that finds no queue sends one request. If that is refused, or a
// queue exists, a waiter joins the queue. The waiter is the acquisition with a function
// that receives its result, as wantConn in net/http.
//
//   - The queue sends the requests, for one waiter at a time: its head. All that it learns
//     about the lock is its own state: the latest refusal, when a request is due, whether
//     the store fails. A head that leaves passes nothing on.
//   - That state is guarded by the locker's mu, and every event ends with queue.advance: a
//     waiter joins or leaves, a notice arrives, the backstop fires, an answer arrives.
//     Advance delivers a grant, has a due request sent, or arms the backstop.
//   - Requests are sent by the queue's run, a goroutine that ends when none is due. There is
//     at most one. It holds no mutex while it calls the store, or a function of the user.
//   - A result is delivered once, with the waiter's removal from the queue. A waiter whose
//     context ends leaves at once, unless its request is in flight: then the answer decides.
//   - A request knows its unknown outcomes. It alone passes a hold to the cleanup.
//   - Each waiter has its own owner, TTL, values and deadline; the requests for it have them.
//     A waiter that loses its turn gets a new owner, as a grant to it would not be noticed.
//   - A deferred function is a waiter whose result puts it into a pool. Requests for it are
//     sent in pools too, of bounded size for each group of the store.
package lock
