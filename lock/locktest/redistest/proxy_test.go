package redistest

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patient is the limit of answers that must come.
const patient = time.Minute

// ping sends PING through a new connection.
func ping(t *testing.T, p *Proxy) error {
	t.Helper()
	client := p.Client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	return client.Ping(ctx).Err()
}

// TestProxyOnSockets runs what depends on the kind of network, one test after the other on a
// server of each kind. Faults in time are tested in virtual time.
func TestProxyOnSockets(t *testing.T) {
	for name, config := range map[string]Config{"unix": {}, "tcp": {TCP: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := Start(t, config)
			for name, test := range map[string]func(t *testing.T, p *Proxy, s *Server){
				"Passes": proxyPasses, "Slices": proxySlices, "Resets": proxyResets, "Refuses": proxyRefuses,
				"DeliversLastWords": proxyDeliversLastWords, "WithoutServer": proxyWithoutServer, "CloseLeavesNothing": proxyCloseLeavesNothing,
			} {
				t.Run(name, func(t *testing.T) { test(t, StartProxy(t, s), s) })
			}
		})
	}
}

func proxyPasses(t *testing.T, p *Proxy, _ *Server) {
	client := p.Client(t)
	big := make([]byte, 1<<20)
	require.NoError(t, client.Set(t.Context(), "big", big, 0).Err())
	require.Len(t, client.Get(t.Context(), "big").Val(), len(big))
}

func proxySlices(t *testing.T, p *Proxy, _ *Server) {
	p.Set(Fault{Slice: true})
	client := p.Client(t)
	require.NoError(t, client.Set(t.Context(), "key", "value of several bytes", 0).Err())
	require.Equal(t, "value of several bytes", client.Get(t.Context(), "key").Val())
}

// raw returns a connection through the proxy on which one PING was answered.
func raw(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	network, address := p.Addr()
	conn, err := net.Dial(network, address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patient)))
	exchange(t, conn)
	return conn
}

const pingRequest, pingReply = "*1\r\n$4\r\nPING\r\n", "+PONG\r\n"

func exchange(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Write([]byte(pingRequest))
	require.NoError(t, err)
	reply := make([]byte, len(pingReply))
	_, err = io.ReadFull(conn, reply)
	require.NoError(t, err)
	require.Equal(t, pingReply, string(reply))
}

func proxyResets(t *testing.T, p *Proxy, _ *Server) {
	conn := raw(t, p)
	require.Equal(t, 1, p.Reset())
	_, err := conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.NoError(t, ping(t, p), "new connections are made again")
}

func proxyRefuses(t *testing.T, p *Proxy, _ *Server) {
	p.Set(Fault{Refuse: true})
	err := ping(t, p)
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "refused at once")
	p.Heal()
	require.NoError(t, ping(t, p))
}

// The last reply of a server that closes the connection must arrive.
func proxyDeliversLastWords(t *testing.T, p *Proxy, _ *Server) {
	conn := raw(t, p)
	_, err := conn.Write([]byte("QUIT\r\n"))
	require.NoError(t, err)
	all, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "+OK\r\n", string(all))
}

func proxyWithoutServer(t *testing.T, p *Proxy, s *Server) {
	s.Kill()
	require.Error(t, ping(t, p))
	s.Restart(t)
	require.NoError(t, ping(t, p))
}

func proxyCloseLeavesNothing(t *testing.T, p *Proxy, _ *Server) {
	conn := raw(t, p)
	p.Set(Blackhole)
	_, err := conn.Write([]byte(pingRequest))
	require.NoError(t, err)
	p.Close()
	p.Close() // twice is fine
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = p.listener.Accept() // its port may be another program's by now
	require.ErrorIs(t, err, net.ErrClosed)
}
