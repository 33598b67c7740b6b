package redistest

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Cut is a network that can be cut, as for a process that is killed. Like [Late], it works in
// a testing/synctest bubble.
type Cut struct {
	mu    sync.Mutex
	cut   bool       // guarded by mu
	conns []net.Conn // guarded by mu; all that were made
}

// Over returns a dialer through the network.
func (c *Cut) Over(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.cut {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			c.conns = append(c.conns, conn)
		}
		return conn, err
	}
}

// Sever closes the connections and refuses further ones.
func (c *Cut) Sever() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}
