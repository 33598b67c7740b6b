// Package postgres benchmarks locks on PostgreSQL beside each other, on a server that it starts,
// with fsync: this module's, session advisory locks, which have no lease, and a plain row with a
// lease, which wakes no waiter.
//
//	go test -bench Pairs
//	go test -bench 'HandOver|Renewals/impl=leasewheel'
package postgres
