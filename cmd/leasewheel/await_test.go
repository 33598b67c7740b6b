package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience bounds every wait for an event that must happen. Only a hang reaches it.
const patience = time.Minute

// eventually waits for a state that no event reports.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); <-time.After(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "never "+what)
		}
	}
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
