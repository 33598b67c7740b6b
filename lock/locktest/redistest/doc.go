// Package redistest starts real Redis servers for tests: a single server
// ([Start]), a master with replicas and sentinels ([StartSentinels]), a cluster
// ([StartCluster]), and a proxy that breaks the network in front of any of them
// ([StartProxy]).
//
// A server is private to its test. It listens on a unix socket in a directory
// of its own, and on a free loopback port only where asked; it keeps nothing on
// disk unless asked; it may be paused, killed and restarted; and it dies with
// the test, or with the test's process where the system can arrange that.
//
// A package that uses it has one line in its tests:
//
//	func TestMain(m *testing.M) { redistest.Main(m) }
//
// Where no redis-server is to be found, [Start] and its kin skip the test, and
// [Main] says at the end how many were left out. With REQUIRE_REDIS=1 or
// CI=true they fail instead: a test that nobody runs must not look like one
// that passes. The server is found by [Find].
//
// A real server answers in real time, so nothing here works inside a
// testing/synctest bubble. For that there is package locktest.
package redistest
