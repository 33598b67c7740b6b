// Package renewal keeps leases alive: a watchdog renews any number of them in batches,
// and notifies each holder the moment its lease can no longer be trusted.
//
// A lease is a right that a store grants for a time and that ends unless the time is
// extended: a lock, a membership, a session, a claim on a job. The package knows no
// store. It reaches one through a [Renewer], which extends a batch of leases in one
// request.
//
// # Using the package
//
// The program that was granted a lease passes it to a [Watchdog], with the instant at
// which it requested the grant:
//
//	watchdog, err := renewal.New(renewer, renewal.Config{})
//
//	asked := time.Now() // before the request is sent
//	… the store grants job:7 for 30 s …
//	lease, err := watchdog.Watch(renewal.Spec{
//		Key: "job:7", Owner: token, TTL: 30 * time.Second, Granted: asked,
//	})
//	defer lease.Stop(ctx)
//
//	work(lease.Context()) // ends, with cause ErrLost, when the lease is lost
//
// # Until when a lease is valid
//
//	until = t0 + TTL − (TTL/100 + 2 ms) − tick
//
// t0 is read from the monotonic clock before the request is sent. The store starts to
// count when it handles the request, which is later. The term in parentheses allows for
// clocks that run at rates up to 1 % apart and for the store's own rounding; it is the
// drift of the Redlock algorithm as its authors publish it. The timeout that ends the
// lease may expire a tick of the wheel late, so a tick is subtracted as well. A renewal
// takes a fresh t0, and moves until only when the store has confirmed it; one for less than
// what is left ends the rest when it is sent. The instant of the reply, the remaining time
// that a store reports, and the wall clock are never used.
//
// # When a lease is lost
//
// A lease is lost at until, even while a renewal is in flight. It is lost at once when
// the store reports that the lease is gone or has another owner. The holder's own rules
// end it too: a longest hold, a liveness function, a heartbeat, the end of a context
// ([Spec]). A lost lease never comes back, not even by a late reply. The holder learns of
// the loss by [Lease.Context], [Lease.Lost], or a function, with its [Cause].
//
// Leases that end at the same instant are lost one after the other, which takes 0.5 µs of a
// processor each: the last of 100,000 about 50 ms after the first. [Lease.Valid] is false for
// all of them at that instant.
//
// One failed renewal is no loss: it is sent again, with jitter, as long as the lease's
// time lasts.
//
// A check of the lease and the write that follows it are two steps, and the process may
// be stopped between them. Where that matters, let the resource compare fencing tokens.
//
// # How renewals are sent
//
// A lease is due for renewal when a third of the TTL that the store last gave has passed.
// Leases that are due at the same time and belong to the same group, such as a node,
// share one request; the renewer names the group. A request with room includes leases
// that would be due soon, so leases taken at random times gather. Leases taken at the
// same time are spread. No lease ever waits in order to be gathered.
//
// Groups are served in parallel, and each may always have a request in flight, so one
// that does not answer costs the others nothing. When a store cannot keep up, the leases
// nearest to their until go first. When no request is answered, the group is probed at growing
// intervals and with fewer leases; a probe that hangs delays none with a shorter TTL for long.
//
// Leases that were not answered are sent again at once and apart from the others: as many
// together as the square root of [Config.BatchSize], and then alone. So a lease that spoils
// its requests, whether they hang, fail or are answered in part, is in two with others and
// alone in the third. With a TTL of at least twenty ticks of the wheel there is time for
// these three, and its neighbours are renewed. If several leases do so, each that is
// alone is sent before any of them of its TTL is again, and short ones before long ones.
//
// # Guarantees and limits
//
// Before its until the lease is the holder's, provided that the store keeps it and that
// the store's clock runs at most 1 % fast. A store may forget a lease by a deletion, an
// eviction, or a failover to a replica without it. The next renewal detects that, at most
// a third of a TTL later.
//
// The loss is reported at most a tick of the wheel after until, and so before the store
// drops the lease, if the process runs and its goroutines are scheduled in time. A
// process that was stopped learns of it when it continues. [Lease.Valid] is right at any
// time. A renewal that the store carries out after the loss was reported may keep the
// lease there for up to another TTL, unless the holder releases it.
//
// # Ground rules
//
// For changes to the package:
//
//  1. Watchdog.mu guards every field of every lease, group, batch and of the
//     calendar. The exceptions are documented: they are atomic, written under mu and
//     read anywhere.
//  2. mu is held for one batch's worth of work at most, and never while a function
//     of a user's runs: renewer, hooks, observer, logger.
//  3. The deadline of a lease is a timer on the wheel. It shares only mu with the
//     sending of renewals: no state of a request can delay a loss.
//  4. A lease's timer is armed at or before the instant at which the lease may
//     be lost. A renewal only moves until; the timer reads until when it fires.
//  5. A lease that has ended is in no list, and in no batch that is not in
//     flight. It never comes back.
package renewal

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// When leases are renewed, and which ones together: calendar.go, dispatcher.go, batch.go,
// group.go.
// Tests: dispatcher_test.go, calendar_test.go, days_test.go, group_test.go,
// standstill_test.go, isolation_test.go.
// Planted: 69, 80, 85, 124, 126, 127, 128, 129, 131, 132, 135, 192, 278, 296, 412, 413, 414, 519, 521, 527, 534, 553.
//
// How long a lease is valid: validity.go.
// Tests: lease_test.go, executor_test.go, loss_test.go, pass_test.go.
// Planted: 34, 81, 82, 120, 130, 136, 138, 194, 195, 275, 291, 416, 418, 455, 518, 520, 535.
//
// Suspends, clock steps and alarms: clock.go, reverify.go.
// Tests: reverify_test.go, alarm_test.go.
// Planted: 20, 83, 125, 133, 193, 261.
//
// The end of a watchdog: close.go.
// Tests: close_test.go.
// Planted: 183, 288, 419, 454.
