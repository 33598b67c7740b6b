// Package driver defines the interfaces that a store of locks implements. It is to package
// lock what database/sql/driver is to database/sql. Code that uses locks needs package
// lock and a store, such as package redisstore. It names types of this package only to
// keep stores in variables, as a []Store for package quorum.
//
// A [Store] keeps a [Hold] for each ownership of a lock. It answers an acquisition with
// an [Answer], and sends a [Notice] to a waiter. [Counter], for semaphores and latches,
// [Inspector] and [Checker] are optional. A new kind of lock is a value of [Kind] with
// fields of Hold, not a method.
//
// The conformance suite of package drivertest checks whether a store keeps the contract.
package driver

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// A new kind of lock: kind.go (at the end), fields of hold.go Hold; a row of lock/kind.go
// kinds, a handle such as lock/fair.go, lock/ownership.go plain() if a request has a new
// field; lock/quorum/store.go reasons; lock/redisstore/kind.go, lock/redisstore/format.go
// Store.kindOf(), a Go file and scripts such as lock/redisstore/fair.go, its script made
// by lock/redisstore/script.go newGrantingScript(), lock/redisstore/inspect.go modes,
// lockKeys(), lock/redisstore/inspect_lock.lua, lock/redisstore/list.go Store.traces(),
// lock/redisstore/force.lua, lock/redisstore/rights.go Store.uses(),
// cmd/leasewheel/acl_rights.go, lock/redisstore/doc.go; cmd/leasewheel/lock_report.go
// kindNames, docs/lock.schema.json, SECURITY.md.
// Tests: a group in lock/driver/drivertest/suite.go, run by
// lock/locktest/backend/suite_test.go and lock/redisstore/conformance_real_test.go; the
// tables of kinds in lock/redisstore/bounds_test.go, lock/redisstore/deadline_test.go,
// lock/redisstore/memory_test.go, lock/redisstore/reply_test.go; in the fault bench
// lock/locktest/chaos/plan.go, lock/locktest/chaos/names.go,
// lock/locktest/chaos/driver_lock.go, lock/locktest/chaos/check_model.go,
// lock/locktest/chaos/check_exclusion.go, lock/locktest/chaos/check_tokens.go,
// lock/locktest/chaos/quiet.go; grep -r KindFair finds the tables of kinds in other tests.
//
// Names, limits and keys: name.go, limits.go, lock/redisstore/keys.go,
// lock/redisstore/names.go.
// Tests: name_test.go, lock/redisstore/names_test.go, lock/redisstore/prefix_test.go.
// Planted: 25, 155, 156.
