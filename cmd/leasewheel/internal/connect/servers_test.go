package connect

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Two addresses of one server make no majority of three.
func TestOneServerUnderTwoNames(t *testing.T) {
	t.Parallel()
	server, other := redistest.Start(t, redistest.Config{TCP: true}), redistest.Start(t, redistest.Config{})
	third, dead := redistest.Start(t, redistest.Config{}), redistest.Start(t, redistest.Config{})
	dead.Kill()
	_, address := server.Addr()
	_, port, _ := strings.Cut(address, ":")
	independent := func(urls ...string) error {
		servers, err := (&Flags{URLs: urls}).OpenNodes("", redisstore.Config{})
		require.NoError(t, err)
		defer servers.Close()
		return servers.Independent(t.Context())
	}
	twice := []string{"redis://127.0.0.1:" + port, "redis://localhost:" + port}
	require.ErrorContains(t, independent(twice[0], twice[1], other.URL()), "are one server")
	require.NoError(t, independent(twice[0], third.URL(), other.URL()))
	require.NoError(t, independent(twice[0], dead.URL(), other.URL()), "a server that is down counts as different")
}
