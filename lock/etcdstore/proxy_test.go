package etcdstore

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy is the network in front of an address: it keeps the bytes of those connections that are
// cut, as a partition does.
type proxy struct {
	to       string
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{}            // closed and replaced when cut changes
	cut     func(source string) bool // nil: none
	conns   map[net.Conn]bool
	closed  bool
}

// startProxy starts a proxy that ends with t.
func startProxy(t testing.TB, to string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{to: to, listener: listener, changed: make(chan struct{}), conns: make(map[net.Conn]bool)}
	p.running.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

// set cuts the connections of some sources. A connection's source is the id of the etcd member
// that has made it; that of a client is empty.
func (p *proxy) set(cut func(source string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	close(p.changed)
	p.changed = make(chan struct{})
}

// reset ends all connections.
func (p *proxy) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.set(nil)
	p.reset()
	p.running.Wait()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(client) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer p.track(client)()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer p.track(server)()
	var source string
	known := make(chan struct{})
	p.running.Go(func() {
		<-known
		p.copy(client, server, &source)
	})
	buffer := make([]byte, 64<<10)
	n, err := client.Read(buffer)
	if err == nil {
		source = sourceOf(buffer[:n])
	}
	close(known)
	if err == nil && p.pass(source) {
		if _, err := server.Write(buffer[:n]); err == nil {
			p.copy(server, client, &source)
		}
	}
	_ = client.Close()
	_ = server.Close()
}

// sourceOf returns the id of the member that a request comes from, by its header.
func sourceOf(request []byte) string {
	_, after, ok := bytes.Cut(request, []byte("X-Server-From: "))
	if !ok {
		return ""
	}
	id, _, _ := bytes.Cut(after, []byte("\r"))
	return string(id)
}

func (p *proxy) copy(to, from net.Conn, source *string) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil || !p.pass(*source) {
			break
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			break
		}
	}
	_ = to.Close()
	_ = from.Close()
}

// pass waits while connections of a source are cut. It returns false at the end.
func (p *proxy) pass(source string) bool {
	for {
		p.mu.Lock()
		cut, changed, closed := p.cut != nil && p.cut(source), p.changed, p.closed
		p.mu.Unlock()
		if closed || !cut {
			return !closed
		}
		<-changed
	}
}

// track has reset close a connection until it is called.
func (p *proxy) track(c net.Conn) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[c] = true; p.closed {
		_ = c.Close()
	}
	return func() {
		_ = c.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}
}
