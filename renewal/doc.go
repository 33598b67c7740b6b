// Package renewal keeps leases alive: a watchdog that renews any number of them
// in batches, and tells each holder the moment its lease can no longer be
// trusted.
//
// A lease is anything that a store lends for a time and takes back unless the
// time is extended: a lock, a membership, a session, a claim on a job. The
// package knows no store. It speaks to one through a [Renewer], which extends a
// batch of leases in one request.
//
// # Meeting the package
//
// Whoever was granted a lease hands it to a [Watchdog], with the instant at
// which the grant was asked for:
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
// t0 is read from the monotonic clock before the request is sent: the store
// starts to count when it handles the request, which is later. The term in
// parentheses allows for clocks that run at rates up to 1 % apart and for the store's
// own rounding; it is the drift of the Redlock algorithm as its authors publish it. The
// timeout that ends the lease may expire a tick of the wheel late, so that a tick goes
// off as well.
// A renewal takes a fresh t0, and moves until only when the store has confirmed
// it. The instant of the reply, the remaining time that a store reports, and the
// wall clock never enter.
//
// # When a lease is lost
//
// At until, even while a renewal is in flight; at once when the store says that
// the lease is gone or somebody else's; and by the holder's own rules: a longest
// hold, a function that vouches for the holder, a heartbeat, the end of a
// context ([Spec]). A lost lease never comes back, whatever a late reply says.
// The holder learns of it by [Lease.Context], [Lease.Lost], or a function, and
// is told which [Cause] it was.
//
// One renewal that fails is no loss: it is sent again, with jitter, until until.
//
// A check of the lease and the write that follows it are two steps, and the
// process may be stopped between them. Where that matters, let the resource
// compare fencing tokens.
//
// # How renewals travel
//
// A lease is due for renewal when a third of its TTL has passed, of the TTL that
// the store last gave. Leases that are due at the same time and belong to the same
// group (a node, say; the renewer knows) travel in one request. A request with room
// takes along leases that would be due soon, so that leases taken at random times
// gather; those taken at the same time are spread. Nothing ever waits in order to
// be gathered.
//
// Groups are served in parallel, and each may always have a request in flight,
// so a mute one costs the others nothing. When a store is slower than what is
// due, the leases nearest to their until go first. Leases whose last renewal was
// not answered travel apart from the others, so that whatever is wrong with one of
// them costs its neighbours one renewal at most. When requests get no answer at
// all, one at a time probes the group, at growing intervals and with fewer leases,
// so that one which spoils every request it is in is soon alone.
//
// # What the holder can rely on, and what it cannot
//
// Until until the lease is the holder's, as far as the store keeps its word and its
// clock runs at most 1 % fast. A store that forgets a lease (a deletion, an
// eviction, a failover to a replica that had not heard of it) is found out at the
// next renewal, a third of a TTL later at most.
//
// The loss is reported at most a tick of the wheel after until, and so before the store
// drops the lease, if the process runs and its goroutines are scheduled in time. A
// process that was stopped learns of it when it goes on. [Lease.Valid] is right at any
// time. A renewal that is carried out at the store after the loss was reported may keep
// the lease there for up to another TTL, unless the holder releases it.
//
// # Ground rules
//
// For those who change the package:
//
//  1. Watchdog.mu guards every field of every lease, group, batch and of the
//     calendar. The exceptions say so: they are atomic, written under mu and
//     read anywhere.
//  2. mu is held for one batch's worth of work at most, and never while anything
//     of a user's runs: renewer, hooks, observer, logger.
//  3. The deadline of a lease is a timer on the wheel and shares nothing with
//     the sending of renewals but mu: no state of a request can delay a loss.
//  4. A lease's timer is armed at or before the instant at which the lease may
//     be lost. A renewal only moves until; the timer finds out when it fires.
//  5. A lease that has ended is in no list, and in no batch that is not in
//     flight. Nothing revives it.
package renewal
