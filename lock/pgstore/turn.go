package pgstore

import (
	"context"
	"sync"
	"time"
)

// turns has this store's steps on one name follow each other: a step that meets another one is made
// anew, so that many at once would do little else. A step needs no turn to be right.
type turns struct {
	mu sync.Mutex
	of map[string]*turn // guarded by mu
}

type turn struct {
	taken chan struct{} // full while a step has the turn
	steps int           // guarded by turns.mu; that have it or wait
}

// longestTurn is how long a step waits for a turn: one whose request hangs does not block the others.
const longestTurn = time.Second

// take waits for the turns of names, which are sorted, and returns how to give them back.
func (t *turns) take(ctx context.Context, names []string) (give func()) {
	ctx, cancel := context.WithTimeout(ctx, longestTurn)
	defer cancel()
	gives := make([]func(), len(names))
	for i, name := range names {
		gives[i] = t.takeOne(ctx, name)
	}
	return func() {
		for _, give := range gives {
			give()
		}
	}
}

func (t *turns) takeOne(ctx context.Context, name string) (give func()) {
	t.mu.Lock()
	at := t.of[name]
	if at == nil {
		at = &turn{taken: make(chan struct{}, 1)}
		t.of[name] = at
	}
	at.steps++
	t.mu.Unlock()
	mine := true
	select {
	case at.taken <- struct{}{}:
	case <-ctx.Done():
		mine = false
	}
	return func() {
		if mine {
			<-at.taken
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if at.steps--; at.steps == 0 {
			delete(t.of, name)
		}
	}
}
