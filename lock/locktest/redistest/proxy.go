package redistest

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Flow is how a proxy treats the bytes of one direction.
type Flow uint8

const (
	// Pass forwards them.
	Pass Flow = iota

	// Hold keeps them and delivers them once the flow passes again, as TCP's
	// retransmission does after a short partition.
	Hold

	// Drop loses them. A connection that has lost bytes stays mute in that direction,
	// also after healing: delivering later bytes would pair replies with the wrong
	// requests, which no network does. The closing of a connection is not lost; it is
	// forwarded after healing.
	Drop
)

// Fault is the treatment of a [Proxy]'s traffic. Its zero value changes nothing.
type Fault struct {
	Requests Flow // from the client to the server
	Replies  Flow // from the server to the client

	// Delay holds every chunk back for this long, in each direction, and Jitter
	// adds a random time below it. Bytes are never reordered.
	Delay, Jitter time.Duration

	// Slice delivers one byte at a time, so that readers meet every possible boundary.
	Slice bool

	// Refuse resets new connections as soon as they are made.
	Refuse bool

	// Lose selects requests that are lost although Requests passes: the bytes of one write
	// of a client. Their connection stays mute, as after [Drop]. Nil: none.
	Lose func(requests []byte) bool

	// Duplicate sends whole pipelines to the server a second time after this delay, on a
	// connection of their own, and drops the replies, as a proxy that repeats requests
	// does. Zero: never. The connection begins with [Proxy.Login].
	Duplicate time.Duration
}

// Blackhole is a network that accepts everything and delivers nothing.
var Blackhole = Fault{Requests: Drop, Replies: Drop}

// Proxy is a faulty wire in front of a server. It listens on the same kind of network as
// the server: a unix socket or a loopback port. Its methods are safe for concurrent use.
type Proxy struct {
	// Login is what a connection of duplicates sends first, such as "AUTH user
	// secret"; "": nothing. It is set before the first connection.
	Login string

	server   *Server
	dial     func() (net.Conn, error) // connects to the server
	dir      string                   // holds the socket; "" on TCP
	listener net.Listener
	loops    sync.WaitGroup // accept, two per connection, one per duplicate
	gone     chan struct{}  // closed by Close

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed and replaced when fault changes
	links   map[*link]struct{}
	closed  bool
}

// StartProxy starts a proxy in front of s, closed at the end of t. It forwards everything
// until [Proxy.Set].
func StartProxy(t TB, s *Server) *Proxy {
	t.Helper()
	network, address := s.Addr()
	p := &Proxy{server: s, dial: func() (net.Conn, error) { return net.Dial(network, address) }}
	if err := p.listen(); err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	p.start(t)
	return p
}

// start accepts connections until the end of t.
func (p *Proxy) start(t TB) {
	p.changed, p.gone, p.links = make(chan struct{}), make(chan struct{}), make(map[*link]struct{})
	p.loops.Go(p.accept)
	t.Cleanup(p.Close)
}

func (p *Proxy) listen() (err error) {
	if network, _ := p.server.Addr(); network == "tcp" {
		p.listener, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}
	if p.dir, err = shortTempDir(); err != nil {
		return err
	}
	p.listener, err = net.Listen("unix", filepath.Join(p.dir, "socket"))
	return err
}

// Addr returns the proxy's network and address in the form of [net.Dial].
func (p *Proxy) Addr() (network, address string) {
	addr := p.listener.Addr()
	return addr.Network(), addr.String()
}

// URL returns the server's [Server.URL] with the proxy's address in it.
func (p *Proxy) URL() string { return p.server.urlAt(p.Addr()) }

// Options returns the server's [Server.Options] with the proxy's address.
func (p *Proxy) Options() *redis.Options {
	options := p.server.Options()
	options.Network, options.Addr = p.Addr()
	return options
}

// Client returns a new client that goes through the proxy, closed at the end
// of t.
func (p *Proxy) Client(t TB) *redis.Client { return newClient(t, p.Options()) }

// Set replaces the fault, for existing connections and for new ones.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
}

// Heal ends the fault. See [Drop] for its lasting effect.
func (p *Proxy) Heal() { p.Set(Fault{}) }

// Stall delays the requests of those existing connections that chosen selects, for d from
// now on. They are delivered then, even if the client has closed its end meanwhile, as
// TCP does after a retransmission. New connections are not stalled.
func (p *Proxy) Stall(chosen func() bool, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	until := time.Now().Add(d)
	for l := range p.links {
		if chosen() {
			l.stalled.Store(&until)
		}
	}
}

// Reset breaks every existing connection, on TCP with a reset at both ends. It returns
// their number.
func (p *Proxy) Reset() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
	return len(p.links)
}

// Close breaks every connection and waits until no goroutine of the proxy runs.
func (p *Proxy) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.gone)
	}
	p.mu.Unlock()
	_ = p.listener.Close() // a second Close is fine
	p.Reset()
	p.loops.Wait()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

func (p *Proxy) current() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		if fault, _ := p.current(); fault.Refuse {
			abort(client)
			continue
		}
		server, err := p.dial()
		if err != nil {
			abort(client) // the server is down, and so is the connection to it
			continue
		}
		p.join(&link{proxy: p, client: client, server: server, done: make(chan struct{})})
	}
}

// join starts the link's two directions, unless the proxy has closed meanwhile.
func (p *Proxy) join(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.reset()
		return
	}
	p.links[l] = struct{}{}
	var directions sync.WaitGroup
	directions.Go(func() { l.carry(l.server, l.client, func(f Fault) Flow { return f.Requests }) })
	directions.Go(func() { l.carry(l.client, l.server, func(f Fault) Flow { return f.Replies }) })
	p.loops.Go(func() {
		directions.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
	})
}

// link is one connection of a client and its counterpart to the server.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	done           chan struct{}             // closed with the link
	stalled        atomic.Pointer[time.Time] // until when requests are delayed; nil: they are not
	once           sync.Once
}

// reset breaks both ends for good. Bytes in transit are lost.
func (l *link) reset() { l.close(abort) }

// end closes both ends; bytes written before still arrive.
func (l *link) end() { l.close(func(conn net.Conn) { _ = conn.Close() }) }

func (l *link) close(each func(net.Conn)) {
	l.once.Do(func() {
		close(l.done)
		each(l.client)
		each(l.server)
	})
}

// abort closes with a reset instead of an orderly end, if the network has resets.
func abort(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

// chunk is the result of one read, and its time.
type chunk struct {
	bytes []byte
	at    time.Time
}

// carry copies from one end to the other until an end closes or the link is reset.
// Separate goroutines read and write, so that a delay shifts the traffic instead of
// slowing it down.
func (l *link) carry(to, from net.Conn, flow func(Fault) Flow) {
	chunks := make(chan chunk, 64)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(chunks)
		l.read(from, chunks)
	})
	l.deliver(to, chunks, flow)
	l.end() // the reader too
	reading.Wait()
}

func (l *link) read(from io.Reader, chunks chan<- chunk) {
	for {
		buffer := make([]byte, 16<<10)
		n, err := from.Read(buffer)
		if n > 0 {
			select {
			case chunks <- chunk{buffer[:n], time.Now()}:
			case <-l.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// deliver returns when the other end has closed and all its bytes are delivered, or when
// the link is broken.
func (l *link) deliver(to io.Writer, chunks <-chan chunk, flow func(Fault) Flow) {
	mute := false // bytes were lost, see Drop
	for {
		select {
		case c, open := <-chunks:
			if !open {
				l.leave(flow, Hold, Drop) // the end of a connection is not lost, it comes late
				return
			}
			fault, ok := l.leave(flow, Hold)
			if !ok || !l.sleep(c.at.Add(fault.delay())) {
				return
			}
			if fault, ok = l.leave(flow, Hold); !ok { // it may hold by now
				return
			}
			if until := l.stalled.Load(); until != nil && to == l.server && !l.sleep(*until) {
				return
			}
			mute = mute || flow(fault) == Drop || to == l.server && fault.Lose != nil && fault.Lose(c.bytes)
			if fault.Duplicate > 0 && to == l.server && !mute {
				l.proxy.duplicate(c.bytes, fault.Duplicate)
			}
			if !mute && write(to, c.bytes, fault.Slice) != nil {
				return
			}
		case <-l.done:
			return
		}
	}
}

// leave waits until the flow is none of states and returns the fault. It returns false if
// the link broke before.
func (l *link) leave(flow func(Fault) Flow, states ...Flow) (Fault, bool) {
	for {
		fault, changed := l.proxy.current()
		if !slices.Contains(states, flow(fault)) {
			return fault, true
		}
		select {
		case <-changed:
		case <-l.done:
			return fault, false
		}
	}
}

func (f Fault) delay() time.Duration {
	if f.Jitter <= 0 {
		return f.Delay
	}
	return f.Delay + rand.N(f.Jitter)
}

// sleep returns false if the link broke before the time had come.
func (l *link) sleep(until time.Time) bool {
	if !time.Now().Before(until) {
		return true
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

func write(to io.Writer, bytes []byte, slice bool) error {
	if !slice {
		_, err := to.Write(bytes)
		return err
	}
	for i := range bytes {
		if _, err := to.Write(bytes[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}
