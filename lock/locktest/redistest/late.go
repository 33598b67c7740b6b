package redistest

import (
	"bytes"
	"context"
	"net"
	"sync"
	"time"
)

// Late is a network that delivers requests much later than they were written, also after
// their client has closed the connection, as retransmission does. It delivers at once until
// [Late.Hold]. Unlike the rest of this package it works in a testing/synctest bubble.
type Late struct {
	mu      sync.Mutex
	holding bool        // guarded by mu; connections that are written to are held
	held    []*lateConn // guarded by mu
}

// DialFunc is a dialer of [redis.Options].
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Over returns a dialer through the network.
func (l *Late) Over(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &lateConn{Conn: conn, network: l}, nil
	}
}

// Hold keeps what is written while holding is true, and later writes on the same
// connections.
func (l *Late) Hold(holding bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding = holding
}

// Deliver delivers what was kept. It returns on how many connections.
func (l *Late) Deliver() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.held {
		_ = c.Conn.SetWriteDeadline(time.Time{})
		if size, err := c.kept.WriteTo(c.Conn); err == nil && size > 0 {
			n++
		}
	}
	return n
}

// Close closes the connections that were held, which their client has closed before.
func (l *Late) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.held {
		_ = c.Conn.Close()
	}
}

// lateConn is a connection whose writes are kept once it is held.
type lateConn struct {
	net.Conn
	network *Late

	held bool         // guarded by network.mu
	kept bytes.Buffer // guarded by network.mu
}

func (c *lateConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.network.holding && !c.held {
		c.held = true
		c.network.held = append(c.network.held, c)
	}
	if c.held {
		return c.kept.Write(p)
	}
	return c.Conn.Write(p)
}

func (c *lateConn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.held {
		return nil
	}
	return c.Conn.Close()
}
