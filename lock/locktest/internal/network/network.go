// Package network is a network inside a test's process, with faults. Its clock is the test's:
// inside a synctest bubble it is the bubble's.
package network

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Fault is what a network does to messages. Its zero value delivers them at once. A message is
// what one Write has sent.
type Fault struct {
	Requests, Replies time.Duration // after which a message arrives
	Jitter            time.Duration // a message takes up to this much longer, as drawn for it
	// LateIn is the chance, in percent, that a request is late by up to Late. Those behind it on
	// the same connection wait for it.
	LateIn int
	Late   time.Duration

	LoseRequests, LoseReplies bool // a connection on which something was lost stays mute until it is reset
	After                     int  // how many requests arrive before LoseRequests has an effect
	HoldRequests, HoldReplies bool // messages wait until the fault has ended
	Refuse                    bool // connections are refused
}

// Dialer opens a connection.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Usual is a network without a fault.
var Usual = Fault{Requests: 200 * time.Microsecond, Replies: 200 * time.Microsecond, Jitter: 400 * time.Microsecond}

// Network connects clients with a server. Its methods are safe for concurrent use.
type Network struct {
	dialServer Dialer
	usual      Fault

	mu      sync.Mutex
	rng     *rand.Rand         // guarded by mu
	faults  []*Fault           // guarded by mu; those that have begun and not ended
	fault   Fault              // guarded by mu; usual and all faults
	changed chan struct{}      // guarded by mu; closed when fault changes
	dead    bool               // guarded by mu
	conns   map[*conn]struct{} // guarded by mu; the open connections
}

// New returns a network that is as usual until a fault begins. Its draws depend on seed.
func New(dial Dialer, seed uint64, usual Fault) *Network {
	return &Network{dialServer: dial, usual: usual, fault: usual, rng: rand.New(rand.NewPCG(seed, 0)), changed: make(chan struct{}), conns: make(map[*conn]struct{})}
}

// Dial opens a connection to the server.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if err := ctx.Err(); err != nil { // a real dialer does the same
		return nil, err
	}
	n.mu.Lock()
	refused := n.dead || n.fault.Refuse
	n.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: syscall.ECONNREFUSED}
	}
	server, err := n.dialServer(ctx, network, address)
	if err != nil {
		return nil, err
	}
	client, relay := net.Pipe()
	c := &conn{Conn: client, network: n, relay: relay, server: server, ended: make(chan struct{}), delivering: 2}
	n.mu.Lock()
	n.conns[c] = struct{}{}
	dead := n.dead
	n.mu.Unlock()
	go c.carry(relay, server, true)
	go c.carry(server, relay, false)
	if dead {
		c.end()
	}
	return c, nil
}

// Begin begins a fault, beside those that have not ended.
func (n *Network) Begin(f *Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, f)
	n.change()
}

// End ends a fault. Connections that have lost something are reset once nothing is lost any more.
func (n *Network) End(f *Fault) {
	n.mu.Lock()
	n.faults = slices.DeleteFunc(n.faults, func(o *Fault) bool { return o == f })
	n.change()
	var mute []*conn
	for c := range n.conns {
		if !n.fault.LoseRequests && !n.fault.LoseReplies && (c.lostRequests || c.lostReplies) {
			mute = append(mute, c)
		}
	}
	n.mu.Unlock()
	for _, c := range mute {
		c.end()
	}
}

// change sums the faults up, and lets held messages go on if none holds them. The caller holds mu.
func (n *Network) change() {
	n.fault = n.usual
	for _, f := range n.faults {
		n.fault.add(*f)
	}
	close(n.changed)
	n.changed = make(chan struct{})
}

func (f *Fault) add(o Fault) {
	f.Requests += o.Requests
	f.Replies += o.Replies
	f.Jitter += o.Jitter
	f.LateIn, f.Late = max(f.LateIn, o.LateIn), max(f.Late, o.Late)
	f.LoseRequests = f.LoseRequests || o.LoseRequests
	f.LoseReplies = f.LoseReplies || o.LoseReplies
	f.After = max(f.After, o.After)
	f.HoldRequests = f.HoldRequests || o.HoldRequests
	f.HoldReplies = f.HoldReplies || o.HoldReplies
	f.Refuse = f.Refuse || o.Refuse
}

// Reset resets the open connections. What is on its way is lost.
func (n *Network) Reset() {
	n.mu.Lock()
	conns := n.conns
	n.conns = make(map[*conn]struct{})
	n.mu.Unlock()
	for c := range conns {
		c.end()
	}
}

// Kill resets the open connections, and refuses all others from now on.
func (n *Network) Kill() {
	n.mu.Lock()
	n.dead = true
	n.mu.Unlock()
	n.Reset()
}

// next draws what becomes of a message.
func (n *Network) next(c *conn, request bool) (delay time.Duration, lost bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &n.fault
	delay = f.Replies
	if request {
		delay = f.Requests
	}
	if f.Jitter > 0 {
		delay += time.Duration(n.rng.Int64N(int64(f.Jitter)))
	}
	if request && f.LateIn > 0 && n.rng.IntN(100) < f.LateIn {
		delay += time.Duration(n.rng.Int64N(int64(f.Late)))
	}
	switch {
	case request && f.LoseRequests && f.After > 0:
		f.After--
	case request && f.LoseRequests:
		c.lostRequests = true
	case !request && f.LoseReplies:
		c.lostReplies = true
	}
	return delay, request && c.lostRequests || !request && c.lostReplies
}

// held returns a channel that is closed when messages may be delivered again; nil: they may.
func (n *Network) held(request bool) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if request && n.fault.HoldRequests || !request && n.fault.HoldReplies {
		return n.changed
	}
	return nil
}

// conn is a client's end of a connection.
type conn struct {
	net.Conn
	network       *Network
	relay, server net.Conn
	ended         chan struct{} // closed by a reset

	// Guarded by the network's mutex.
	lostRequests, lostReplies bool // some were lost
	delivering                int  // directions in which messages may still arrive

	mu    sync.Mutex
	reset bool // guarded by mu
}

// message arrives at an instant.
type message struct {
	at   time.Time
	data []byte
}

// carry delivers what is sent from one end to the other. What was sent before an end closed is
// delivered.
func (c *conn) carry(from, to net.Conn, request bool) {
	const window = 1 << 12 // messages that may be on their way
	under := make(chan message, window)
	go c.deliver(under, to, request)
	defer close(under)
	buffer := make([]byte, 1<<15)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			delay, lost := c.network.next(c, request)
			if !lost {
				select {
				case under <- message{time.Now().Add(delay), append([]byte(nil), buffer[:n]...)}:
				case <-c.ended:
					return
				}
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver delivers messages in their order.
func (c *conn) deliver(under <-chan message, to net.Conn, request bool) {
	defer c.delivered()
	defer to.Close()
	for m := range under {
		if d := time.Until(m.at); d > 0 && !c.pause(time.After(d)) {
			return
		}
		for held := c.network.held(request); held != nil; held = c.network.held(request) {
			select {
			case <-held:
			case <-c.ended:
				return
			}
		}
		if _, err := to.Write(m.data); err != nil {
			return
		}
	}
}

// pause returns false if the connection is reset meanwhile.
func (c *conn) pause(timer <-chan time.Time) bool {
	select {
	case <-timer:
		return true
	case <-c.ended:
		return false
	}
}

// delivered records that a direction has ended. Until both have, a reset finds the connection: its
// client may have closed it, and a request be on its way.
func (c *conn) delivered() {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.delivering--; c.delivering == 0 {
		delete(c.network.conns, c)
	}
}

// end closes both ends at once.
func (c *conn) end() {
	c.mu.Lock()
	if !c.reset {
		c.reset = true
		close(c.ended)
	}
	c.mu.Unlock()
	_ = c.relay.Close()
	_ = c.server.Close()
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	return n, c.failed("read", err)
}

func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	return n, c.failed("write", err)
}

// failed returns the error of a connection, which a reset has if err is one.
func (c *conn) failed(op string, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.reset {
		return &net.OpError{Op: op, Net: "pipe", Err: syscall.ECONNRESET}
	}
	return err
}
