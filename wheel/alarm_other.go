//go:build !linux

package wheel

// newAlarm returns the portable alarm: there is no precise one here.
func newAlarm(bool) alarm { return newPortableAlarm() }
