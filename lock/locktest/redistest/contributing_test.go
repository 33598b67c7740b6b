package redistest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// The lines of docs/CONTRIBUTING.md: the request arrives, its answer does not.
func TestContributing(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	proxy := redistest.StartProxy(t, server)
	client := proxy.Client(t)
	require.NoError(t, client.Ping(t.Context()).Err())  // a connection that needs no further answer
	proxy.Set(redistest.Fault{Replies: redistest.Drop}) // requests arrive, answers do not

	direct := server.Client(t)
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan error, 1)
	go func() { answered <- client.Set(ctx, "arrived", "yes", 0).Err() }()
	require.Eventually(t, func() bool {
		return direct.Get(t.Context(), "arrived").Val() == "yes"
	}, time.Minute, time.Millisecond)
	select {
	case err := <-answered:
		require.Fail(t, "an answer arrived", "%v", err)
	default:
	}
	cancel()
	proxy.Heal()
	proxy.Reset() // the connection whose answer was dropped
	require.Error(t, <-answered, "its caller gave up")
}
