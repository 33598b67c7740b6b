//go:build unix

package bench

import (
	"syscall"
	"time"
)

// ReadUsage returns the process' usage; ok is false if the system does not report it.
func ReadUsage() (u Usage, ok bool) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return Usage{}, false
	}
	return Usage{
		CPU:      time.Duration(r.Utime.Nano() + r.Stime.Nano()),
		Switches: int64(r.Nvcsw), //nolint:unconvert // an int32 on some systems
	}, true
}
