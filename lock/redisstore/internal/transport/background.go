package transport

import "sync"

// background are the goroutines of a store that send requests.
type background struct {
	mu     sync.Mutex
	closed bool           // guarded by mu
	work   sync.WaitGroup // added to under mu, while not closed
}

// Go runs send in a goroutine. Close waits for it, unless Go comes after Close.
func (b *background) Go(send func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		go send()
		return
	}
	b.work.Go(send)
}

// Close waits for what was begun.
func (b *background) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.work.Wait()
}
