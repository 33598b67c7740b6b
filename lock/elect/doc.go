// Package elect lets the processes of a fleet elect a leader. The leader holds a lock of
// package lock, so all of its promises apply: a leader that dies is replaced within the
// lock's TTL, the context of one that is cut off ends before another is elected, and one
// that shuts down is replaced at once.
//
//	err := elect.New(locker, "scheduler", lock.Options{}).Run(ctx, func(ctx context.Context, term int64) error {
//		// Lead until ctx ends.
//	})
//
// Each leadership has a term, a number that is larger than those of all earlier ones; on a
// store without fencing tokens it is 0. Like
// every lease, a leadership cannot end a function that runs: a leader that was paused may
// go on for a moment beside its successor. Let the resources that it changes refuse a term
// smaller than the largest that they have seen (Martin Kleppmann, "How to do distributed
// locking", 2016). Where none can, [Election.FailStop] ends the process of a leader that does
// not stop. [Election.IsLeader] and [Election.Await] are for the rest of the program.
package elect

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Elections: election.go.
// Tests: election_test.go, process_real_test.go.
// Planted: 178, 312, 363.
//
// What the rest of the program sees of a leadership: lead.go.
// Tests: lead_test.go.
// Planted: 238, 239, 559.
//
// The end of a process whose leadership is lost: failstop.go.
// Tests: failstop_test.go, process_real_test.go.
// Planted: 237.
