//go:build !linux

package renewal

import "time"

// bootTime has no clock to read: only the wall clock reveals a suspend.
func bootTime() (time.Duration, bool) { return 0, false }
