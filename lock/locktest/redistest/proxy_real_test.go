//go:build real

package redistest

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A delay is not a queue: bytes sent together arrive together.
func TestProxyDelayKeepsThroughput(t *testing.T) {
	s := Start(t, Config{})
	p := StartProxy(t, s)
	p.Set(Fault{Delay: 50 * time.Millisecond})
	network, address := p.Addr()
	conn, err := net.Dial(network, address)
	require.NoError(t, err)
	defer conn.Close()
	begun := time.Now()
	const pings = 50
	for range pings {
		_, err := conn.Write([]byte("PING\r\n"))
		require.NoError(t, err)
		time.Sleep(time.Millisecond) // chunks of their own
	}
	_, err = io.ReadFull(conn, make([]byte, pings*len("+PONG\r\n")))
	require.NoError(t, err)
	require.Less(t, time.Since(begun), pings*50*time.Millisecond)
}
