package machine

import (
	"context"
	"sync"
)

// Turns has a store's steps on one name follow each other: a step that meets another one is made
// anew, so that many at once would do little else. A step needs no turn to be right.
type Turns struct {
	mu sync.Mutex
	of map[string]*turn // guarded by mu
}

type turn struct {
	taken chan struct{} // full while a step has the turn
	steps int           // guarded by Turns.mu; that have it or wait
}

// Take waits for the turns of different names, and returns how to give them back. Steps on several
// names sort them. If ctx ends first it takes none, and returns the context's error.
func (t *Turns) Take(ctx context.Context, names ...string) (give func(), err error) {
	for i, name := range names {
		if err := t.take(ctx, name); err != nil {
			t.give(names[:i])
			return nil, err
		}
	}
	return func() { t.give(names) }, nil
}

func (t *Turns) take(ctx context.Context, name string) error {
	t.mu.Lock()
	if t.of == nil {
		t.of = make(map[string]*turn)
	}
	at := t.of[name]
	if at == nil {
		at = &turn{taken: make(chan struct{}, 1)}
		t.of[name] = at
	}
	at.steps++
	t.mu.Unlock()
	select {
	case at.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		t.mu.Lock()
		defer t.mu.Unlock()
		t.leave(name, at)
		return ctx.Err()
	}
}

func (t *Turns) give(names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, name := range names {
		at := t.of[name]
		<-at.taken
		t.leave(name, at)
	}
}

// leave counts a step less. The caller holds mu.
func (t *Turns) leave(name string, at *turn) {
	if at.steps--; at.steps == 0 {
		delete(t.of, name)
	}
}
