package locktest

import "sync"

// freezer keeps requests waiting while it is frozen. Its zero value is not.
type freezer struct {
	mu     sync.Mutex
	frozen chan struct{} // closed by thaw; nil unless frozen. Guarded by mu.
}

func (f *freezer) freeze() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen == nil {
		f.frozen = make(chan struct{})
	}
}

func (f *freezer) thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.frozen != nil {
		close(f.frozen)
		f.frozen = nil
	}
}

// await waits until it is not frozen. It returns false if a channel is closed before.
func (f *freezer) await(done, broken <-chan struct{}) bool {
	for {
		f.mu.Lock()
		frozen := f.frozen
		f.mu.Unlock()
		if frozen == nil {
			return true
		}
		select {
		case <-frozen:
		case <-done:
			return false
		case <-broken:
			return false
		}
	}
}
