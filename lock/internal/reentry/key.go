// Package reentry has the context key of the ownership of a lock. Package elect hides an ownership by
// a nil value.
package reentry

import "github.com/leasewheel/leasewheel/lock/driver"

// Key is the context key of an ownership.
type Key struct {
	Locker any
	Kind   driver.Kind // of a fair lock the mutex'
	Name   string
}
