// Package reentry has the context key of the ownership of a lock. Package elect hides an ownership by
// a nil value.
package reentry

import "github.com/leasewheel/leasewheel/lock/driver"

// Key is the context key of an ownership; see [KeyOf].
type Key struct {
	locker any
	kind   driver.Kind
	name   string
}

// KeyOf returns the key of a lock's ownership. A fair lock is the mutex of its name.
func KeyOf(locker any, kind driver.Kind, name string) Key {
	if kind == driver.KindFair {
		kind = driver.KindMutex
	}
	return Key{locker, kind, name}
}
