//go:build real && unix

package etcdstore

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHungMembers has a store whose client names two members first that accept connections and do
// not answer: the lease by which it waits is kept alive by the third before it ends, in 5 s, unless
// the machine stalls for one of them.
func TestHungMembers(t *testing.T) {
	client := common(t).dial(t)
	members := client.Endpoints()
	for range 2 {
		hung, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
		require.NoError(t, err)
		t.Cleanup(func() { hung.Close() })
		members = append([]string{"http://" + hung.Addr().String()}, members...)
	}
	client.SetEndpoints(members...)
	s := openOn(t, client, "hung")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	l, err := s.waiter(ctx)
	require.NoError(t, err)
	granted := s.leases.endOf(l)
	eventually(t, "the lease is kept alive, or ends", func() bool { return s.leases.endOf(l) > granted || s.leases.own(l.id) == nil })
	require.NotNil(t, s.leases.own(l.id), "places in queues are lost with a hung member")
}
