package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// ping sends PING through a new connection. The limit is for faults under which
// no answer is expected.
func ping(t *testing.T, p *Proxy, limit time.Duration) error {
	t.Helper()
	client := p.Client(t)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return client.Ping(ctx).Err()
}

const (
	patient   = time.Minute           // for answers that must come
	impatient = 50 * time.Millisecond // for answers that must not
)

func networks(t *testing.T, test func(t *testing.T, p *Proxy, s *Server)) {
	for name, config := range map[string]Config{"unix": {}, "tcp": {TCP: true}} {
		t.Run(name, func(t *testing.T) {
			s := Start(t, config)
			test(t, StartProxy(t, s), s)
		})
	}
}

func TestProxyPasses(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		client := p.Client(t)
		big := make([]byte, 1<<20)
		require.NoError(t, client.Set(t.Context(), "big", big, 0).Err())
		require.Len(t, client.Get(t.Context(), "big").Val(), len(big))
	})
}

func TestProxyDelaysEachWay(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		client := p.Client(t)
		require.NoError(t, client.Ping(t.Context()).Err()) // connected
		p.Set(Fault{Delay: 30 * time.Millisecond})
		begun := time.Now()
		require.NoError(t, client.Ping(t.Context()).Err())
		require.GreaterOrEqual(t, time.Since(begun), 60*time.Millisecond)
	})
}

func TestProxyBlackhole(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		p.Set(Blackhole)
		err := ping(t, p, impatient)
		require.Error(t, err)
		p.Heal()
		err = ping(t, p, patient)
		require.NoError(t, err)
	})
}

func TestProxyDropsRepliesOnly(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, s *Server) {
		client := p.Client(t)
		require.NoError(t, client.Ping(t.Context()).Err())
		p.Set(Fault{Replies: Drop})
		ctx, cancel := context.WithTimeout(t.Context(), impatient)
		defer cancel()
		require.Error(t, client.Incr(ctx, "counter").Err())
		direct := s.Client(t)
		require.Eventually(t, func() bool { return direct.Get(t.Context(), "counter").Val() == "1" },
			patient, time.Millisecond, "the request must arrive")
	})
}

func TestProxyDropsRequestsOnly(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, s *Server) {
		client := p.Client(t)
		require.NoError(t, client.Ping(t.Context()).Err())
		p.Set(Fault{Requests: Drop})
		ctx, cancel := context.WithTimeout(t.Context(), impatient)
		defer cancel()
		require.Error(t, client.Incr(ctx, "counter").Err())
		require.Zero(t, s.Client(t).Exists(t.Context(), "counter").Val(), "the request must not have arrived")
	})
}

func TestProxyLosesChosenRequests(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, s *Server) {
		other := p.Client(t)
		require.NoError(t, other.Ping(t.Context()).Err())
		p.Set(Fault{Lose: func(requests []byte) bool { return bytes.Contains(requests, []byte("lost")) }})
		ctx, cancel := context.WithTimeout(t.Context(), impatient)
		defer cancel()
		require.Error(t, p.Client(t).Incr(ctx, "lost").Err())
		require.NoError(t, other.Incr(t.Context(), "kept").Err(), "other connections are answered")
		require.Zero(t, s.Client(t).Exists(t.Context(), "lost").Val(), "the request must not have arrived")
	})
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

func exchange(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Write([]byte("PING\r\n"))
	require.NoError(t, err)
	reply := make([]byte, len("+PONG\r\n"))
	_, err = io.ReadFull(conn, reply)
	require.NoError(t, err)
	require.Equal(t, "+PONG\r\n", string(reply))
}

func TestProxyHoldDeliversLater(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		conn := raw(t, p)
		p.Set(Fault{Replies: Hold})
		begun := time.Now()
		time.AfterFunc(impatient, p.Heal)
		exchange(t, conn)
		require.GreaterOrEqual(t, time.Since(begun), impatient)
	})
}

// A reply after a lost one would be taken for the lost one's.
func TestProxyConnectionThatLostBytesStaysMute(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		conn, other := raw(t, p), raw(t, p)
		p.Set(Fault{Replies: Drop})
		_, err := conn.Write([]byte("ECHO first\r\n"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(impatient)))
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		p.Heal()
		_, err = conn.Write([]byte("ECHO second\r\n"))
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(impatient)))
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)

		exchange(t, other) // it was silent meanwhile and lost nothing
	})
}

func TestProxySlices(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		p.Set(Fault{Slice: true})
		client := p.Client(t)
		require.NoError(t, client.Set(t.Context(), "key", "value of several bytes", 0).Err())
		require.Equal(t, "value of several bytes", client.Get(t.Context(), "key").Val())
	})
}

func TestProxyResets(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		conn := raw(t, p)
		require.Equal(t, 1, p.Reset())
		_, err := conn.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		err = ping(t, p, patient)
		require.NoError(t, err, "new connections are made again")
	})
}

func TestProxyRefuses(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		p.Set(Fault{Refuse: true})
		err := ping(t, p, patient)
		require.Error(t, err)
		require.NotErrorIs(t, err, context.DeadlineExceeded, "refused at once")
		p.Heal()
		err = ping(t, p, patient)
		require.NoError(t, err)
	})
}

// The last reply of a server that closes the connection must arrive.
func TestProxyDeliversLastWords(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		conn := raw(t, p)
		_, err := conn.Write([]byte("QUIT\r\n"))
		require.NoError(t, err)
		all, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "+OK\r\n", string(all))
	})
}

func TestProxyWithoutServer(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, s *Server) {
		s.Kill()
		err := ping(t, p, patient)
		require.Error(t, err)
		s.Restart(t)
		err = ping(t, p, patient)
		require.NoError(t, err)
	})
}

func TestProxyCloseLeavesNothing(t *testing.T) {
	networks(t, func(t *testing.T, p *Proxy, _ *Server) {
		conn := raw(t, p)
		p.Set(Blackhole)
		_, err := conn.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		p.Close()
		p.Close() // twice is fine
		network, address := p.Addr()
		_, err = net.Dial(network, address)
		require.Error(t, err)
	})
}
