package bench

import "time"

// Usage is what this process has used since it began, or between two readings.
type Usage struct {
	// CPU is user and system time of all threads together.
	CPU time.Duration
	// Switches counts the voluntary context switches: how often a thread
	// went to sleep, and so how often one was woken.
	Switches int64
}

// Since returns what was used after the earlier reading.
func (u Usage) Since(earlier Usage) Usage {
	return Usage{CPU: u.CPU - earlier.CPU, Switches: u.Switches - earlier.Switches}
}
