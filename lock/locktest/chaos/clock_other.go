//go:build !linux

package chaos

import "time"

// hostNow is not called: only in a bubble are there rounds.
func hostNow() instant { return instant(time.Now().UnixNano()) }
