//go:build !unix

package terminal

import "os"

// InForeground reports whether this process may write to a terminal: here jobs have none of
// their own.
func InForeground(*os.File) bool { return true }

// takesOutput reports true: writes wait.
func takesOutput(*os.File) bool { return true }
