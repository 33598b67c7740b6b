//go:build !race

package renewal

// The size of the virtual days.
const (
	dayKeys     = 10000
	daysOfATest = 30
)
