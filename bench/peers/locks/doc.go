// Package locks benchmarks distributed locks beside each other, on a redis-server
// that it starts: this module's, those of other Go modules, and bare protocols that
// show what a server and a client can reach.
//
//	go test -bench 'Pairs/impl=(leasewheel|redsync)$'
//	go test -bench 'HandOver/impl=leasewheel$/waiters=16$'
//
// What is measured, package contention tells. Every hand-over says how often it has
// seen two holders at once.
package locks
