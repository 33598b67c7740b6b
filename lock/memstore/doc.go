// Package memstore keeps locks in the memory of one process. They exclude the goroutines of this
// process and no other process: for that take a store outside of it, such as package redisstore.
// Code written against package lock works with either.
//
//	locker, err := lock.New(memstore.New(), lock.Config{})
//
// It is for programs of one process that want what a sync.Mutex lacks: locks by name, waits that
// end with a context, leases that end if their holder hangs, fair and read-write locks,
// semaphores, inspection. It is also for development and tests without a server, and works inside
// a testing/synctest bubble. Package locktest adds outages.
//
// Every kind of lock is supported, with queues and fencing tokens. A pair of Lock and Unlock
// takes the store about a µs, and package lock a few. What has ended is dropped a second later,
// by a timer, which stops with the last Close. There is no goroutine.
//
// The locks end with the process. Tokens grow beyond its end, since they begin with the clock in
// µs, unless that is set back or one name is granted more than 62,500 times a second.
//
// A store is [lock/internal/machine] and a map: this package is also the example for authors of
// stores in this module.
package memstore

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Requests: store.go, subscription.go, lock/internal/machine/requests.go; what they
// mean: lock/internal/machine/doc.go.
// Tests: suite_test.go, suite_real_test.go; their backend: lock/locktest/backend/memory.go.
//
// Whether the suite reports a fault: broken_test.go.
//
// What is dropped, and when: memory.go, lock/internal/machine/state.go State.Ends().
// Tests: memory_test.go.
