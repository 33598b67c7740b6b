package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// NameError describes why a lock's name, or a pattern of names, is rejected.
type NameError = driver.NameError

// EscapeName converts any text into a name that [driver.ValidateName] accepts, unless it is
// empty or too long; see [driver.EscapeName].
func EscapeName(text string) string { return driver.EscapeName(text) }
