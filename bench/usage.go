package bench

import "time"

// Usage is the process' usage since its start, or between two readings.
type Usage struct {
	// CPU is user and system time of all threads together.
	CPU time.Duration
	// Switches counts voluntary context switches: each is a thread that blocked, and later
	// woke up.
	Switches int64
}

// Since returns the usage after the earlier reading.
func (u Usage) Since(earlier Usage) Usage {
	return Usage{CPU: u.CPU - earlier.CPU, Switches: u.Switches - earlier.Switches}
}
