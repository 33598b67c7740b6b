// Package lock provides distributed locks with renewed leases and fencing tokens. A
// watchdog renews each lease; the holder is notified when its lease is lost.
//
// # Quick start
//
// A [Locker] joins a store to a watchdog: package redisstore, quorum, filestore or memstore.
// ([driver] is for authors of stores; it has the kinds of locks, their limits, and what
// inspection returns.) Its methods return handles by name, which are cheap. A granted lock
// is a [Lease]:
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
// count; with any other the holder waits for itself. The Options stay those of the first.
// All methods are safe for concurrent use.
//
// # When the store does not answer
//
// TryLock, every method whose name begins with Try, and Unlock return within
// [Config.RequestTimeout]; the release of Unlock is then repeated in the background.
// Lock survives any outage, as long as its context lives, and with [Mutex.MaxWait] one
// shorter than that. If the outcome of an abandoned request is unknown, the hold is released in the
// background until the store confirms it.
//
// # Waiting
//
// The waiters of one name in one process form a queue, whose head alone sends requests. It
// is woken by the store's message, by the end of the holder's lease, or by a slow poll (or
// an [Options.Retry]) if both fail. The heads of different processes wait in a queue in the
// store. The release of a [Mutex] grants it to the first of them. Clients of other libraries
// get every other turn. [Locker.Fair] keeps the order across all processes.
//
// # Errors
//
// [errors.Is] finds the Err values in an error, and [errors.As] the types:
//
//	error                 meaning                                          what to do
//	ErrNotAcquired        another owner has the lock: a *NotAcquiredError  wait longer, or skip the work
//	ErrTooManyWaiters     Config.MaxWaiters; if refused, ErrNotAcquired    shed load
//	ErrRetriesExhausted   Options.Retry has stopped                        as ErrNotAcquired
//	ErrTooManyDeferred    Config.MaxDeferred                               shed load
//	ErrForeign            something else uses the name                     use another name or format
//	ErrUpgrade            a reader requested the write lock                unlock the read lock first
//	ErrUnavailable        no answer in time; a grant is released later     retry; read a count again first
//	ErrNotDone            the request has changed nothing                  retry
//	ErrUnsupported        the store lacks this kind or method              another store
//	ErrOverflow           the count would leave its range; unchanged       correct the number
//	ErrClosed             the locker is closed                             nothing
//	ErrLost               the lease ended before Unlock: a *LostError      stop, or check the work done
//	ErrReleased           the lease was unlocked                           correct the program
//	ErrNotHeld            Unlock was called twice                          correct the program
//	ErrNotRepeated        a failed release is not repeated                 its TTL ends it; permits: add them
//	ErrCancelled          Deferred.Cancel came first                       nothing
//	NameError             a name or a pattern is rejected                  EscapeName
//	RangeError            a number or a TTL is out of range                stay within Min and Max
//	PanicError            a deferred function or the store panicked        correct the function, or the hook
//	UnreleasedError       Shutdown could not release these locks           their TTL ends them
package lock

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// How a process waits for a lock: waiter.go, queue.go, run.go, result.go.
// Tests: waiting_test.go, queue_test.go, faults_test.go, liveness_test.go, idle_test.go,
// leaving_test.go, usercontext_test.go, firstperiod_test.go.
// Planted: 22, 23, 27, 28, 29, 59, 68, 70, 71, 72, 73, 324, 336, 350, 369, 441, 481, 548, 549, 552, 554, 614.
//
// Retries: the user's policy: lock/retry/policy.go, run.go queue.retry().
// Tests: lock/retry/policy_test.go, retry_test.go.
// Planted: 439, 513.
//
// Retries of failed requests: lock/internal/backoff/backoff.go Retry() for acquire.go
// Locker.tryRepeatedly(), ownership.go ownership.reacquire(), counter.go, inspector.go,
// lock/delayqueue/script.go Queue.ask(); of a waiter run.go queue.failed(), outage.next(),
// queue.go queue.begin(); request.go request.release(); lock/quorum/cleanup.go backlog.run();
// all these by lock/internal/backoff/backoff.go After(); cleanup.go cleanup.release().
// Tests: faults_test.go, cleanup_test.go, semaphore_test.go, lock/delayqueue/faults_test.go,
// lock/internal/backoff/backoff_test.go.
// Planted: 24, 396, 417.
//
// Pauses between retries, and between attempts at a message (lock/delayqueue/backoff.go):
// lock/internal/backoff/backoff.go Pause().
// Tests: lock/internal/backoff/backoff_test.go.
//
// Retries elsewhere: renewal/batch.go Watchdog.retry(), renewal/group.go
// lane.notAnswered(); lock/delayqueue/worker.go worker.pause(), worker.subscribe(),
// lock/delayqueue/handle.go worker.settle();
// lock/redisstore/internal/pubsub/subscriber.go Subscriber.move(), lock/redisstore/internal/transport/request.go
// Transport.runOne(); cmd/leasewheel/internal/run/run.go command.request().
// Tests: renewal/dispatcher_test.go, lock/quorum/late_test.go,
// lock/delayqueue/faults_test.go.
// Planted: 37.
//
// Unlock, cleanup: ownership.go, request.go, cleanup.go.
// Tests: cleanup_test.go, faults_test.go.
// Planted: 21, 26, 55, 60, 325, 560, 603.
//
// Close, Shutdown: shutdown.go, acquire.go activity, client.go, renewal/close.go.
// Tests: shutdown_test.go, activity_test.go, limit_test.go, client_test.go, renewal/close_test.go.
// Planted: 44, 54, 84, 175, 176, 177, 199, 448, 457, 501, 502, 555, 602, 635, 636.
//
// How long a call takes: limit.go limit, request.go Locker.requestBy(),
// lock/internal/backoff/backoff.go Retry(), multi.go Multi.acquire(); lock/quorum/acquire.go attempt.by,
// lock/quorum/store.go Store.bound(); lock/delayqueue/script.go Queue.ask(),
// lock/delayqueue/worker.go worker.windUp(); the bounds: docs/reliability.md.
// Tests: lock/locktest/bounds_test.go, limit_test.go.
// Planted: 179, 180, 181, 182, 184.
//
// A lock that outlasts its Unlock: ownership.go ownership.keep(),
// lock/redisstore/store.go Store.Release(), lock/quorum/release.go.
// Tests: minhold_test.go, deferred_test.go, lock/quorum/store_test.go.
// Planted: 65, 66, 67, 443, 516.
//
// Metrics, reports and messages: lock/observe/observe.go, observer.go, stats.go, renewal/observer.go,
// panic.go, run.go outage.next(), lock/internal/logging/logger.go, lock/internal/exporter/sources.go,
// wheel/stats.go, wheel/lags.go.
// Tests: observer_test.go, logger_test.go, faults_test.go, lock/internal/logging/logger_test.go,
// lock/internal/exporter/exporter_test.go,
// renewal/observer_test.go, renewal/dispatcher_test.go,
// wheel/stats_test.go, wheel/lags_test.go.
// Planted: 121, 122, 123, 137, 289, 366, 397, 605, 607, 611, 612.
//
// Local hand-off: handoff.go, renewal/pass.go.
// Tests: handoff_test.go, renewal/pass_test.go.
// Planted: 134, 514, 551.
//
// Functions: lease.go do(); deferred ones: deferred.go, deferral.go.
// Tests: deferred_test.go, do_test.go, lock/redisstore/deferred_test.go.
// Planted: 198, 309, 444, 445, 512, 536, 550, 565, 566, 601.
//
// Several locks together: multi.go.
// Tests: multi_test.go, together_test.go.
// Planted: 197, 456, 515.
//
// What is queued for each group of the store: pool.go, for deferral.go and cleanup.go; all
// queues: docs/reliability.md.
// Tests: group_test.go.
// Planted: 157, 158, 159, 517.
//
// Fair locks: fair.go, placekeeper.go, lock/driver/placekeeper.go,
// lock/redisstore/fair.go, lock/redisstore/internal/lua/fair_acquire.lua,
// lock/redisstore/internal/lua/fair_keep.lua, lock/redisstore/internal/lua/fair_queue.lua,
// lock/redisstore/internal/lua/fair_release.lua.
// Tests: lock/redisstore/fair_test.go, lock/redisstore/fair_keep_test.go, lock/redisstore/fair_mixed_test.go, lock/redisstore/bounds_test.go,
// fair_test.go.
// Planted: 14, 15, 169, 170, 171, 172, 173, 290, 310, 335, 423, 478, 544, 545, 567, 590, 600.
//
// Read-write locks: readwrite.go, lock/redisstore/readwrite.go,
// lock/redisstore/internal/lua/readwrite.lua.
// Tests: lock/redisstore/readwrite_test.go, liveness_test.go.
// Planted: 10, 13, 16, 48, 75, 76, 539.
//
// Semaphores, permits, latches: lock/driver/counter.go, counter.go, semaphore.go,
// confirmed.go, permits.go, latch.go; lock/redisstore/count.go, lock/redisstore/permit.go,
// lock/redisstore/semaphore.go.
// Tests: confirmed_test.go, permits_test.go, semaphore_test.go, lock/redisstore/semaphore_test.go,
// lock/redisstore/latch_test.go, liveness_test.go.
// Planted: 11, 12, 47, 50, 58, 74, 165, 166, 167, 189, 190, 191, 210, 211, 323, 440, 442, 452.
//
// Inspecting locks: lock/driver/inspector.go, inspector.go, pattern.go, lock/redisstore/inspect.go,
// lock/redisstore/list.go, lock/redisstore/internal/lua/inspect_lock.lua,
// cmd/leasewheel/internal/look/report.go, cmd/leasewheel/internal/connect/foreign.go.
// Tests: pattern_test.go, inspector_test.go, lock/redisstore/inspect_test.go, lock/redisstore/mute_test.go,
// cmd/leasewheel/lookup_test.go.
// Planted: 19, 40, 42, 164, 216, 217, 220, 364, 447, 604, 606.
