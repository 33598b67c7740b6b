//go:build unix

package interrupt

import (
	"context"
	"os/signal"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A signal that is ignored, as HUP is under nohup(1) and INT by a script's jobs in the background, ends
// no context.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	signal.Ignore(unix.SIGUSR1)
	defer signal.Reset(unix.SIGUSR1)
	ctx, stop := Context(t.Context(), unix.SIGUSR1, unix.SIGUSR2)
	defer stop()
	for _, sig := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2} {
		require.NoError(t, unix.Kill(unix.Getpid(), sig))
	}
	<-ctx.Done()
	require.Equal(t, Error(unix.SIGUSR2), context.Cause(ctx))
}
