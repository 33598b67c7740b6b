package locktest

import (
	"net"
	"sync"
)

// wire is a connection whose writes never wait for the other end to read, as those of a
// socket with a large buffer. The pipe below it has no buffer: on it, a client that sends
// while the server sends would block for ever.
type wire struct {
	net.Conn
	server *Server

	mu     sync.Mutex
	unsent []byte // guarded by mu
	closed bool   // guarded by mu

	more chan struct{} // signals unsent data, or that the wire is closed
	done chan struct{} // closed with the wire
}

func newWire(server *Server, pipe net.Conn) *wire {
	w := &wire{server: server, Conn: pipe, more: make(chan struct{}, 1), done: make(chan struct{})}
	go w.send()
	return w
}

// Write queues p for sending.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return 0, net.ErrClosed
	}
	w.unsent = append(w.unsent, p...)
	w.signal()
	return len(p), nil
}

// Close drops unsent data. The pipe ends first: the server may be writing to it, and let no
// dial go on meanwhile, for which forget would wait.
func (w *wire) Close() error {
	w.mu.Lock()
	if !w.closed {
		close(w.done)
	}
	w.closed = true
	w.signal()
	w.mu.Unlock()
	err := w.Conn.Close()
	w.server.forget(w)
	return err
}

func (w *wire) signal() {
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// send sends until the wire is closed.
func (w *wire) send() {
	for range w.more {
		w.server.freezer.await(w.done, nil)
		w.mu.Lock()
		p, closed := w.unsent, w.closed
		w.unsent = nil
		w.mu.Unlock()
		if closed {
			return
		}
		w.server.tick()
		if _, err := w.Conn.Write(p); err != nil {
			_ = w.Close()
			return
		}
	}
}
