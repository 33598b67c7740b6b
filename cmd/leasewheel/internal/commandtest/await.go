// Package commandtest runs leasewheel in tests: in the test's process, or as a process of
// its own. It awaits what a command does, and checks what it prints.
package commandtest

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience bounds every wait for an event that must happen. Only a hang reaches it.
const Patience = time.Minute

// Eventually waits for a state that no event reports.
func Eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !is(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "never "+what)
		}
	}
}

// Bounded returns a context for several requests, which ends with the test, or when only a hang can be why
// they are not done.
func Bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 5*Patience)
	t.Cleanup(cancel)
	return ctx
}
