// Package contention measures locks: how fast they are taken and given back, and
// how they pass from one waiter to the next. The benchmarks beside other libraries
// and the command leasewheel bench lock share it.
//
// What is measured is any [Locks]. [Pairs.Measure] has goroutines that never meet
// take and give back locks of their own. [HandOver.Measure] has waiters, in one
// process or in several, contend for one lock.
//
// # What is measured of a hand-over
//
// Every contender asks for the lock again as soon as it has given it back. A
// hand-over is a grant to somebody else than the last holder: who takes a lock that
// it has just given back has handed nothing over. Its latency counts from just
// before the holder asks for the release to just after the next one has the lock.
// The longest wait has those in it that nobody has ended when the measurement ends.
//
// All contenders meet at a [Board], memory that their processes share. A holder
// signs it and wipes its name off before it gives the lock back, so that one who
// finds another's name there has found a lock with two holders: the measurement is
// a test of mutual exclusion too.
package contention
