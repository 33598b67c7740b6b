//go:build linux

package filestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// keyMutex has a mutex for each file that the store's own requests use or wait for. They get it in the order
// of their arrival. If they all tried flock(2) until one of them had the file, a thousand requests for one
// name would starve each other, the renewals of its holder among them, and each would need a descriptor.
type keyMutex struct {
	mu   sync.Mutex
	keys map[string]*mutex // guarded by mu
}

type mutex struct {
	locked chan struct{} // has room for one; full while it is locked
	users  int           // guarded by keyMutex.mu
}

var errQueued = errors.New("the requests before it have used the file for longer than it may take: they are many, or another process has kept it locked (see lslocks)")

// lock waits for the mutex of a key until ctx or ending ends, or for lockWait if ctx has no deadline. deadline is
// when that wait is over, if it has begun.
func (k *keyMutex) lock(ctx, ending context.Context, key string) (deadline time.Time, err error) {
	k.mu.Lock()
	m := k.keys[key]
	if m == nil {
		m = &mutex{locked: make(chan struct{}, 1)}
		k.keys[key] = m
	}
	m.users++
	k.mu.Unlock()
	select {
	case m.locked <- struct{}{}:
		return time.Time{}, nil
	default:
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(lockWait)
		bounded, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		ctx = bounded
	}
	select {
	case m.locked <- struct{}{}:
		return deadline, nil
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", errQueued, context.Cause(ctx))
	case <-ending.Done():
		err = context.Cause(ending)
	}
	k.leave(key, m)
	return deadline, err
}

func (k *keyMutex) unlock(key string) {
	k.mu.Lock()
	m := k.keys[key]
	k.mu.Unlock()
	<-m.locked
	k.leave(key, m)
}

// leave drops the mutex of a key that no request uses any more.
func (k *keyMutex) leave(key string, m *mutex) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(k.keys, key)
	}
}
