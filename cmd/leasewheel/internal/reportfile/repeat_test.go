package reportfile

import (
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
)

// The command line that a report names repeats the measurement in a shell, and has nothing of what
// connects to a server: a report is for others.
func TestRepeatCommand(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "measure"},
		{[]string{"--tick", "1ms,10ms", "--precise", "--leases", "7", "--html", "page"}, "measure --leases 7 --precise --tick 1ms,10ms"},
		{[]string{"--store", "redis://:secret@cache:6379", "--store-ca", "ca secret"}, "measure --store URL"},
		{[]string{"--store-file", "secret", "--store-user", "secret", "--leases", "7"}, "measure --leases 7 --store URL"},
		{[]string{"--store", "redis://cache", "--store-password-command", "echo secret"}, "measure --store URL"},
		{[]string{"--store", "redis://cache", "--store-password-file", "secret"}, "measure --store URL"},
	} {
		cmd := &cobra.Command{Use: "measure"}
		flags := cmd.Flags()
		flags.Int("leases", 1, "")
		flags.Bool("precise", false, "")
		flags.DurationSlice("tick", []time.Duration{time.Millisecond}, "")
		flags.String("html", "", "")
		new(connect.Flags).Register(flags)
		require.NoError(t, cmd.ParseFlags(c.args))
		assert.Equal(t, c.want, RepeatCommand(cmd))
	}
}
