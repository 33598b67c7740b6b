// Package redistest starts real Redis servers for tests: a single server
// ([Start]), a master with replicas and sentinels ([StartSentinels]), a cluster
// ([StartCluster]), and a proxy that breaks the network in front of any of them
// ([StartProxy]).
//
// A server is private to its test. It listens on a unix socket in a directory of its own,
// and on a free loopback port only on request. It writes nothing to disk unless
// configured. It may be paused, killed and restarted. It dies with the test, or with the
// test's process if the system supports that.
//
// A package that uses it has one line in its tests:
//
//	func TestMain(m *testing.M) { testmain.Run(m) }
//
// Without a redis-server, [Start] and the like skip the test, and [Run] reports at the
// end how many were skipped. With REQUIRE_REDIS=1 or CI=true they fail instead: a test
// that never runs must not look like one that passes. [Find] finds the server.
//
// A real server answers in real time, so nothing here works inside a testing/synctest
// bubble. Package locktest does.
package redistest

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Processes that tests leave: need.go Run(), descendants_linux.go.
// Tests: descendants_test.go.
// Planted: 139, 149.
//
// Ports of servers, of other kinds too: port.go FreeAddress().
// Tests: server_test.go.
// Planted: 471.
