//go:build !linux

package renewal

import "time"

// bootTime has no clock to read: the wall clock alone tells of a suspend.
func bootTime() (time.Duration, bool) { return 0, false }
