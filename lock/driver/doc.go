// Package driver defines what a store of locks implements. Package lock uses it, as
// package database/sql uses the drivers of databases. Code that uses locks needs
// package lock alone.
//
// A [Store] keeps a [Hold] for each ownership of a lock. It answers an acquisition with
// an [Answer], and sends a [Notice] to those that wait. [Counter] and [Inspector] are
// optional. A new kind of lock is a value of [Kind] and fields of Hold, not a method.
//
// The conformance suite of package locktest shows whether a store keeps the contract.
package driver
