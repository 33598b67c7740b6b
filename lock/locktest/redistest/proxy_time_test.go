package redistest

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
)

// impatient is how long tests in virtual time wait for what must not come.
const impatient = 50 * time.Millisecond

// pipes is a listener within the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.conns <- server:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipes) Addr() net.Addr { return nil }

// virtual is a proxy in front of a server within the process, in virtual time.
type virtual struct {
	*Proxy
	t      *testing.T
	pipes  *pipes
	direct *redis.Client // of the server, without the proxy
}

// inBubble runs a test in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, v *virtual)) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		v := &virtual{t: t, pipes: &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}}
		v.Proxy = &Proxy{dial: server.Dial, listener: v.pipes}
		v.start(t)
		v.direct = v.clientOf(server.Dial)
		test(t, v)
	})
}

func (v *virtual) clientOf(dial func() (net.Conn, error)) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Dialer:                func(context.Context, string, string) (net.Conn, error) { return dial() },
		ContextTimeoutEnabled: true, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	v.t.Cleanup(func() { _ = client.Close() })
	return client
}

// client returns a client through the proxy, which is connected.
func (v *virtual) client() *redis.Client {
	client := v.clientOf(v.pipes.dial)
	require.NoError(v.t, client.Ping(v.t.Context()).Err())
	return client
}

// raw returns a connection through the proxy on which one PING was answered.
func (v *virtual) raw() net.Conn {
	conn, err := v.pipes.dial()
	require.NoError(v.t, err)
	v.t.Cleanup(func() { _ = conn.Close() })
	exchange(v.t, conn)
	return conn
}

// silent checks that a request is not answered.
func (v *virtual) silent(request func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(v.t.Context(), impatient)
	defer cancel()
	require.Error(v.t, request(ctx))
}

func incr(client *redis.Client, key string) func(ctx context.Context) error {
	return func(ctx context.Context) error { return client.Incr(ctx, key).Err() }
}

func TestProxyDelaysEachWay(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		client := v.client()
		v.Set(Fault{Delay: 30 * time.Millisecond})
		begun := time.Now()
		require.NoError(t, client.Ping(t.Context()).Err())
		require.Equal(t, 60*time.Millisecond, time.Since(begun))
	})
}

// A delay is not a queue: each chunk arrives after the delay.
func TestProxyDelayKeepsThroughput(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		const pings, delay = 50, 50 * time.Millisecond
		conn := v.raw()
		v.Set(Fault{Delay: delay})
		begun := time.Now()
		go func() {
			for range pings {
				_, _ = conn.Write([]byte(pingRequest))
				time.Sleep(time.Millisecond) // chunks of their own
			}
		}()
		_, err := io.ReadFull(conn, make([]byte, pings*len(pingReply)))
		require.NoError(t, err)
		require.Equal(t, (pings-1)*time.Millisecond+2*delay, time.Since(begun))
	})
}

func TestProxyBlackhole(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		v.Set(Blackhole)
		v.silent(func(ctx context.Context) error { return v.clientOf(v.pipes.dial).Ping(ctx).Err() })
		v.Heal()
		v.client()
	})
}

func TestProxyDropsRepliesOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		client := v.client()
		v.Set(Fault{Replies: Drop})
		v.silent(incr(client, "counter"))
		require.Equal(t, "1", v.direct.Get(t.Context(), "counter").Val(), "the request must arrive")
	})
}

func TestProxyDropsRequestsOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		client := v.client()
		v.Set(Fault{Requests: Drop})
		v.silent(incr(client, "counter"))
		require.Zero(t, v.direct.Exists(t.Context(), "counter").Val(), "the request must not have arrived")
	})
}

func TestProxyLosesChosenRequests(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		client, other := v.client(), v.client()
		v.Set(Fault{Lose: func(requests []byte) bool { return bytes.Contains(requests, []byte("lost")) }})
		v.silent(incr(client, "lost"))
		require.NoError(t, other.Incr(t.Context(), "kept").Err(), "other connections are answered")
		require.Zero(t, v.direct.Exists(t.Context(), "lost").Val(), "the request must not have arrived")
	})
}

func TestProxyHoldDeliversLater(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		conn := v.raw()
		v.Set(Fault{Replies: Hold})
		begun := time.Now()
		time.AfterFunc(impatient, v.Heal)
		exchange(t, conn)
		require.Equal(t, impatient, time.Since(begun))
	})
}

// A reply after a lost one would be taken for the lost one's.
func TestProxyConnectionThatLostBytesSendsNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, v *virtual) {
		conn, other := v.raw(), v.raw()
		v.Set(Fault{Replies: Drop})
		for range 2 {
			_, err := conn.Write([]byte(pingRequest))
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(impatient)))
			_, err = conn.Read(make([]byte, 1))
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			v.Heal()
		}
		exchange(t, other) // it was silent meanwhile and lost nothing
	})
}
