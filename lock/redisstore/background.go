package redisstore

import "sync"

// background are the goroutines of a store that send requests.
type background struct {
	mu     sync.Mutex
	closed bool           // guarded by mu
	work   sync.WaitGroup // added to under mu, while not closed
}

// begin runs send in a goroutine. close waits for it, unless begin comes after close.
func (b *background) begin(send func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		go send()
		return
	}
	b.work.Go(send)
}

// close waits for what was begun.
func (b *background) close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.work.Wait()
}
