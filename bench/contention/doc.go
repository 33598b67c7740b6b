// Package contention measures locks: the rate of acquisitions and releases, and of
// hand-overs from one waiter to the next. The benchmarks beside other libraries and the
// command leasewheel bench lock share it.
//
// It measures any [Locks], in one process or in several. [Pairs.Measure] runs goroutines that use
// locks of their own. [HandOver.Measure] runs waiters that contend for one lock.
//
// # What is measured of a hand-over
//
// Every contender requests the lock again as soon as it has released it. A hand-over is a
// grant to another contender than the last holder. Reacquiring a lock just released is not a
// hand-over. Its latency counts from just before the release to just after the next grant.
// The longest wait includes waits still open at the end.
//
// All contenders share a [Board] in memory. A holder writes its number there after the grant,
// and removes it before the release. A holder that finds another number has found a lock with
// two holders, so each measurement also tests mutual exclusion.
package contention
