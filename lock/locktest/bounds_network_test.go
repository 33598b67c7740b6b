package locktest_test

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"
)

// network connects clients with a server. It delivers everything at once until a fault
// begins. Its clock is the test's.
type network struct {
	dialServer func(ctx context.Context, network, address string) (net.Conn, error)

	well bool // faults do not reach it

	mu    sync.Mutex
	fault fault                    // guarded by mu
	reset *time.Timer              // guarded by mu; of the fault, or nil
	conns map[*faultyConn]struct{} // guarded by mu; the open connections
}

// fault is what a network does to requests. Its zero value is none.
type fault struct {
	mute  bool          // requests do not arrive
	after int           // how many packets arrive nevertheless
	delay time.Duration // after which a request arrives
	reset time.Duration // after the begin of the fault, its connections are reset; zero: never
}

func newNetwork(dial func(ctx context.Context, network, address string) (net.Conn, error)) *network {
	return &network{dialServer: dial, conns: make(map[*faultyConn]struct{})}
}

func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil { // a real dialer does the same
		return nil, err
	}
	server, err := n.dialServer(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &faultyConn{Conn: server, network: n, ended: make(chan struct{}), more: make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = struct{}{}
	go c.deliver()
	return c, nil
}

// begin begins a fault.
func (n *network) begin(f fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.well {
		return
	}
	n.fault = f
	if n.reset != nil {
		n.reset.Stop()
		n.reset = nil
	}
	if f.reset > 0 {
		n.reset = time.AfterFunc(f.reset, n.resetAll)
	}
}

// heal ends the fault, and the connections that it may have damaged.
func (n *network) heal() {
	n.begin(fault{})
	n.resetAll()
}

// resetAll resets the open connections.
func (n *network) resetAll() {
	n.mu.Lock()
	conns := n.conns
	n.conns = make(map[*faultyConn]struct{})
	n.mu.Unlock()
	for c := range conns {
		_ = c.end(true)
	}
}

// next returns the fault of the next packet.
func (n *network) next() (mute bool, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault.after > 0 {
		n.fault.after--
		return false, n.fault.delay
	}
	return n.fault.mute, n.fault.delay
}

// faultyConn is a connection through a network.
type faultyConn struct {
	net.Conn
	network *network
	ended   chan struct{}
	more    chan struct{} // has room for one; sent to when something is on its way

	mu       sync.Mutex
	reset    bool     // guarded by mu
	closed   bool     // guarded by mu
	onTheWay []packet // guarded by mu
}

// packet arrives at an instant.
type packet struct {
	at   time.Time
	data []byte
}

func (c *faultyConn) Write(p []byte) (int, error) {
	mute, delay := c.network.next()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, c.failed(net.ErrClosed)
	case mute:
		return len(p), nil
	}
	c.onTheWay = append(c.onTheWay, packet{time.Now().Add(delay), append([]byte(nil), p...)})
	select {
	case c.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// deliver delivers what is on its way until the connection ends.
func (c *faultyConn) deliver() {
	for {
		next, some := c.take()
		if !some {
			select {
			case <-c.more:
				continue
			case <-c.ended:
				return
			}
		}
		select {
		case <-time.After(time.Until(next.at)):
			_, _ = c.Conn.Write(next.data)
		case <-c.ended:
			return
		}
	}
}

// take removes the first packet that is on its way.
func (c *faultyConn) take() (p packet, some bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.onTheWay) == 0 {
		return packet{}, false
	}
	p = c.onTheWay[0]
	c.onTheWay = c.onTheWay[1:]
	return p, true
}

func (c *faultyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	return n, c.failed(err)
}

// failed returns the error of a connection, which a reset has if err is one. The caller
// holds mu.
func (c *faultyConn) failed(err error) error {
	if err != nil && c.reset {
		return &net.OpError{Op: "read", Net: "pipe", Err: syscall.ECONNRESET}
	}
	return err
}

func (c *faultyConn) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.end(false)
}

func (c *faultyConn) end(reset bool) error {
	c.mu.Lock()
	if !c.closed {
		c.closed, c.reset = true, reset
		close(c.ended)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}
