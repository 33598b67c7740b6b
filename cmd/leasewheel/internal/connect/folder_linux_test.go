package connect

import (
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A process without a free descriptor fails as with a server that is out of reach. Not parallel: the
// limit is the process's.
func TestFolderWithoutDescriptors(t *testing.T) {
	var s Flags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.RegisterFolder(flags, true)
	require.NoError(t, flags.Parse([]string{"--dir", t.TempDir() + "/locks"}))
	var limit unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	none := limit
	none.Cur = 3
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &none))
	_, err := s.openFolder(nil, redisstore.Config{})
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit))
	var code *exit.Error
	require.ErrorAs(t, err, &code)
	require.Equal(t, exit.Unavailable, code.Code)
	require.ErrorIs(t, err, unix.EMFILE)
}
