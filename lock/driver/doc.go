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
