package redisstore

import (
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
	"github.com/leasewheel/leasewheel/renewal"
)

// kind is one kind of lock in one format. Each has a file of its own, with its scripts and
// keys, and the two sides of a read-write lock have one.
type kind struct {
	// handlers returns the channels of the hold's waiter.
	handlers func(r request) []handler

	acquire func(r request) (*transport.Call, error)
	// answer parses the reply of that.
	answer func(reply any, h *driver.Hold) (driver.Answer, error)
	// release is nil for a kind whose holds take nothing.
	release func(r request) (*transport.Call, error)

	// renew is the script that prolongs any number of holds; nil for holds without leases.
	renew *transport.Script
	// prolong adds the keys and arguments of one hold to a call of it.
	prolong func(s *Store, c *transport.Call, at key, lease *renewal.Item)

	// counter is the script that reads and changes the count; nil for a kind without one.
	counter *transport.Script
	// counting returns its keys: the lock, the channel, the record of a request's outcome.
	counting func(s *Store, at key, request string) []key

	trace  *trace // by which locks are found; nil if that of another kind suffices
	rights rights
}
