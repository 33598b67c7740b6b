package network

import (
	"context"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What is on its way on a connection that its client has closed is lost as well once the connections
// are reset: a killed process reaches the server no more.
func TestResetAfterTheClientHasClosed(t *testing.T) {
	for name, reset := range map[string]func(*Network){"Reset": (*Network).Reset, "Kill": (*Network).Kill} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				relay, server := net.Pipe()
				defer server.Close()
				n := New(func(context.Context, string, string) (net.Conn, error) { return relay, nil }, 1, Fault{})
				held := Fault{HoldRequests: true}
				n.Begin(&held)
				client, err := n.Dial(t.Context(), "tcp", "server")
				require.NoError(t, err)
				_, err = client.Write([]byte("held"))
				require.NoError(t, err)
				require.NoError(t, client.Close())
				_, err = server.Write([]byte("a reply that finds no client"))
				require.NoError(t, err)
				synctest.Wait()
				reset(n)
				go n.End(&held)
				arrived, _ := server.Read(make([]byte, 100))
				assert.Zero(t, arrived, "broken promise: the request has arrived")
			})
		})
	}
}
