// Package driver defines the interfaces that a store of locks implements. It is to package
// lock what database/sql/driver is to database/sql. Code that uses locks needs package
// lock and a store, such as package redisstore. It names this package to keep stores in
// variables, as a []Store for package quorum, for the kinds of locks in reports, and for what an
// inspection returns. A store imports this package and not package lock.
//
// Mandatory is [Store], with [KindMutex] and the fields Kind, Name, Owner, Count and TTL of a
// [Hold]. Every other [Kind] is optional: [Store.Supports] refuses it. So are the extras of a
// Hold: a store without a queue of waiters ignores [Queue], as one does that reserves no tokens,
// and one that cannot keep a released lock refuses [Hold.Keep]; [ReadWrite] and [Semaphore]
// belong to their kinds. Optional interfaces are [Counter], which KindSemaphore, [KindPermit]
// and [KindLatch] need; [PlaceKeeper], for many waiters for one lock of [KindFair]; [Inspector],
// for inspection and forced release; [Checker], for what may break a promise; and [Fencer], by
// which the tokens of several stores agree. Without an optional interface the methods of package
// lock that need it return [ErrUnsupported], or do without: each waiter keeps its own place, and
// a quorum's tokens follow its nodes' clocks.
//
// A new kind of lock is a value of Kind with fields of Hold, not a method. The conformance suite
// of package drivertest checks whether a store keeps the contract; its example is a store of
// mutexes, from which to begin. The smallest complete store is package memstore. Its meaning of the
// kinds, lock/internal/machine, serves the stores of this module; authors of others copy it, or
// compare their store with it.
//
// # Kinds and events
//
// A release to zero sends a [Notice], and so does a forced one. The end of a TTL sends none.
// After a gap in which a message may have been missed, every subscription gets the zero Notice.
//
//	kind                 names shared with     event                              notified
//	KindMutex            KindFair              release                            the first of the queue, by a grant;
//	                                                                              without a queue all waiters
//	KindFair             KindMutex             release; the head gives up         the head of the queue
//	KindRead, KindWrite  each other            release of the last reader or      all waiters of both
//	                                           of the writer; a writer that has
//	                                           blocked readers gives up
//	KindSemaphore        KindPermit            the count grows                    all waiters of both
//	KindLatch            none                  the count is zero or deleted       all waiters
//
// A lock of another kind that does not share the name refuses, and its release notifies no waiter:
// one polls that was refused with [Answer.OtherKind] or [Answer.Foreign]. Readers that hold a lock
// together share a token, which a writer keeps that goes on reading; any other grant has one of its own.
//
// A request of the same owner that is sent again has no second effect. An acquisition is granted
// again with its token, or with KindPermit a larger one, and a fresh TTL. With KindSemaphore it
// is granted again without taking more, and refused after its release. A release is confirmed
// again; of a lease held is then false, of a semaphore's permits true.
package driver

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// A new kind of lock: kind.go kinds (at the end), fields of hold.go Hold if it asks for more;
// lock/kind.go kinds, a handle such as lock/fair.go; lock/internal/machine/state.go kinds, a
// file with its steps such as lock/internal/machine/fair.go; lock/redisstore/format.go kinds, a
// Go file with its row such as lock/redisstore/fair.go fair and its scripts such as
// lock/redisstore/internal/lua/fair_acquire.lua. If inspection knows it by a key of its own:
// lock/redisstore/inspect.go lockKeys(), lock/redisstore/internal/lua/inspect_lock.lua. For a
// command that no script had: lock/redisstore/internal/lua/rights.lua. The documents:
// lock/internal/machine/doc.go, lock/redisstore/doc.go, docs/lock.schema.json, SECURITY.md.
// Tests: a file such as lock/driver/drivertest/fair_tests.go, its row in
// lock/driver/drivertest/suite.go, lock/redisstore/differential_test.go mixes. Others have
// tables of kinds: lock/redisstore/bounds_test.go, lock/redisstore/deadline_test.go,
// lock/redisstore/memory_test.go, lock/redisstore/reply_test.go; the fault bench has a world of
// each kind: lock/locktest/chaos/plan.go, lock/locktest/chaos/check_model.go.
//
// Names, limits and keys: name.go, limits.go, lock/redisstore/keys.go.
// Tests: name_test.go, lock/redisstore/names_test.go, lock/redisstore/prefix_test.go.
// Planted: 25, 155, 156.
