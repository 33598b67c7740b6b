// Package locktest supports tests of code that uses locks.
//
// # Your own tests
//
// [New] gives a test a working locker, in the memory of the test's own process:
//
//	func TestReport(t *testing.T) {
//		locker := locktest.New(t, lock.Config{})
//		…
//	}
//
// It also works inside a testing/synctest bubble, where a lease of an hour expires at once and a
// test of a loss takes no time:
//
//	func TestReportStopsOnLoss(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			memory := locktest.StartMemory(t)
//			locker := memory.Locker(t, lock.Config{TTL: time.Minute})
//			…
//			memory.Delete("report") // now the lease is lost at its next renewal
//		})
//	}
//
// A locker belongs to the bubble that it was made in: one from outside panics with "close of synctest
// channel from outside bubble". One of lock.New is closed before the bubble ends.
//
// [Memory.Freeze] and [Memory.Disconnect] are outages; [Memory.Delete] is a loss of data.
//
// [Start] gives a test a Redis server instead, inside its process and its bubble, for tests of
// what Redis itself does: the same client, scripts and messages as in production. It has the same
// outages, and [Server.Restart] has it start again with none of its data, or with old ones. [Play]
// runs a fleet of processes for hours of virtual time, with faults drawn from a seed.
//
// A test that imports this package has none of go-redis's own messages about connections, of which
// an outage makes many; redisstore.LogTo, called by TestMain, routes them to a logger.
//
// A [Scope] takes the place of the test in examples, and in programs that are developed without a
// server.
//
// Authors of stores use package drivertest instead.
package locktest

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Fleets: fleet.go, lock/locktest/internal/network/network.go.
// Tests: fleet_test.go, process_test.go, lock/locktest/internal/network/network_test.go.
// Planted: 365, 411, 634.
