// Package locks benchmarks distributed locks beside each other, on a redis-server
// that it starts: this module's, those of other Go modules, and bare protocols as a floor for
// server and client.
//
//	go test -bench 'Pairs/impl=(leasewheel|redsync)$'
//	go test -bench 'HandOver/impl=leasewheel$/waiters=16$'
//
// Package contention describes the measurements. Every hand-over reports how often two
// contenders held the lock at once.
package locks
