//go:build !unix

package bench

// ReadUsage returns the process' usage; ok is false if the system does not report it.
func ReadUsage() (u Usage, ok bool) { return Usage{}, false }
