package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// NameError describes why a lock's name, or a pattern of names, is rejected.
type NameError = driver.NameError

// EscapeName converts text into the name of a lock; see [driver.EscapeName].
func EscapeName(text string) string { return driver.EscapeName(text) }
