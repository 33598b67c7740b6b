// Package locktest supports tests of code that uses locks.
//
// # Your own tests
//
// [New] gives a test a working locker, on a server inside the test's own process:
//
//	func TestReport(t *testing.T) {
//		locker := locktest.New(t, lock.Config{})
//		…
//	}
//
// The server behaves like a real one in all that concerns locks: the same client, scripts
// and messages as in production. It also works inside a testing/synctest bubble, where a
// lease of an hour expires at once and a test of a loss takes no time:
//
//	func TestReportStopsOnLoss(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			server := locktest.Start(t)
//			locker := server.Locker(t, lock.Config{TTL: time.Minute})
//			…
//			server.Delete("report") // now the lease is lost at its next renewal
//		})
//	}
//
// [Server.Freeze] and [Server.Disconnect] are outages; [Server.Delete] is a loss of data;
// [Server.Restart] has the server start again with none of its data, or with old ones. [Play]
// runs a fleet of processes for hours of virtual time, with faults drawn from a seed. A
// [Scope] takes the place of the test in examples, and in programs that are developed
// without a Redis.
//
// Authors of stores use package drivertest instead.
package locktest
