//go:build race

package renewal

// The size of the virtual days under the race detector, where they cost ten times as much.
// Each step draws as many faults, releases and takeovers as without it, so fewer keys see
// more of them each, and the leases of a group still fill several batches.
const (
	dayKeys     = 2000
	daysOfATest = 3
)
