//go:build !unix

package redistest

import "syscall"

// There are no such signals here: sending one fails, and so does a test that pauses a
// server.
const (
	sigStop     = syscall.Signal(254)
	sigContinue = syscall.Signal(255)
)
