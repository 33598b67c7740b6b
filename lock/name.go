package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// NameError describes why a lock's name, or a pattern of names, is rejected.
type NameError = driver.NameError

// ValidateName returns nil if name can name a lock, and otherwise a *[NameError]; see
// [driver.ValidateName].
func ValidateName(name string) error { return driver.ValidateName(name) }

// EscapeName converts any text into a name that [ValidateName] accepts, unless it is
// empty or too long; see [driver.EscapeName].
func EscapeName(text string) string { return driver.EscapeName(text) }
