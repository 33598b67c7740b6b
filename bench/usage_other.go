//go:build !unix

package bench

// ReadUsage returns what the process has used so far; ok is false where the
// system does not report it.
func ReadUsage() (u Usage, ok bool) { return Usage{}, false }
