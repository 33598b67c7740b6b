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
	arrive  int         // guarded by mu; writes that still arrive before
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
	l.holding, l.arrive = holding, 0
}

// HoldAfter is Hold(true) after so many further writes.
func (l *Late) HoldAfter(writes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding, l.arrive = true, writes
}

// Deliver delivers what was kept, and what is written to these connections afterwards unless
// they are still held. It returns on how many connections something was kept.
func (l *Late) Deliver() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.held {
		_ = c.Conn.SetWriteDeadline(time.Time{})
		c.keeps = l.holding
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

	held  bool         // guarded by network.mu; it has kept something
	keeps bool         // guarded by network.mu; further writes are kept
	kept  bytes.Buffer // guarded by network.mu
}

func (c *lateConn) Write(p []byte) (int, error) {
	l := c.network
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holding && !c.keeps {
		if l.arrive > 0 {
			l.arrive--
			return c.Conn.Write(p)
		}
		c.keeps = true
		if !c.held {
			c.held = true
			l.held = append(l.held, c)
		}
	}
	if c.keeps {
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
