package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// bell rings for waiters when their lock is released. However many locks are
// waited for, it has one subscription connection for each node.
//
// Ground rules:
//
//  1. bell.mu guards every field of the bell, its channels and its lines that is
//     not constant. It is never held while a server is spoken to.
//  2. A line is one connection and never connects again. When it breaks, its
//     channels move to a new one, and whoever waits on them is woken then, for a
//     message may have been missed in between.
//  3. line.order is held while a line's subscriptions change and the change is
//     sent, so that the server hears of changes in the order in which they were
//     made. The sender's context bounds it. It is taken before mu.
type bell struct {
	store *Store

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup // readers, health checks and movers; added to under mu

	mu       sync.Mutex
	lines    map[string]*line    // the unbroken ones, by node
	channels map[string]*channel // those that somebody listens to, by name
}

// errClosed is returned by a subscription to a closed store.
var errClosed = errors.New("redisstore: the store is closed")

func newBell(s *Store) *bell {
	b := &bell{store: s, lines: make(map[string]*line), channels: make(map[string]*channel)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// channel is one channel that somebody listens to.
type channel struct {
	name string
	subs map[*subscription]struct{}
	line *line // carries the channel; nil while it moves

	// ready is closed once the server has confirmed the channel for the first
	// time, or will not: then err says why.
	ready     chan struct{}
	confirmed bool
	err       error
}

// ring wakes whoever listens. The caller holds bell.mu.
func (c *channel) ring() {
	for sub := range c.subs {
		sub.wake()
	}
}

// subscription is one listener of a channel.
type subscription struct {
	bell    *bell
	channel *channel
	wake    func()
}

// Subscribe has wake called for every release of the lock.
func (s *Store) Subscribe(ctx context.Context, h *lock.Hold, wake func()) (lock.Subscription, error) {
	k, err := kindOf(h.Kind)
	if err != nil {
		return nil, err
	}
	b := s.bell
	sub, fresh, err := b.enlist(k.channel(h), wake)
	if err != nil {
		return nil, err
	}
	if fresh {
		if err := b.attach(ctx, sub.channel); err != nil {
			b.fail(sub.channel, err)
		}
	}
	select {
	case <-sub.channel.ready:
	case <-ctx.Done():
		sub.Close()
		return nil, classify(ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := sub.channel.err; err != nil {
		return nil, err
	}
	return sub, nil
}

// enlist adds a listener. fresh says that it is the channel's first, whose part it
// is to ask the server for the channel.
func (b *bell) enlist(name string, wake func()) (sub *subscription, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, false, errClosed
	}
	c := b.channels[name]
	if c == nil {
		fresh = true
		c = &channel{name: name, subs: make(map[*subscription]struct{}), ready: make(chan struct{})}
		b.channels[name] = c
	}
	sub = &subscription{bell: b, channel: c, wake: wake}
	c.subs[sub] = struct{}{}
	return sub, fresh, nil
}

// Close ends the subscription, and with the last one the channel.
func (sub *subscription) Close() {
	b, c := sub.bell, sub.channel
	b.mu.Lock()
	delete(c.subs, sub)
	var l *line
	if len(c.subs) == 0 && b.channels[c.name] == c {
		delete(b.channels, c.name)
		l = c.line
	}
	b.mu.Unlock()
	if l != nil {
		l.retire(c)
	}
}

// attach asks the server for a channel, on the line to the channel's node.
func (b *bell) attach(ctx context.Context, c *channel) error {
	n, err := b.store.node(ctx, c.name)
	if err != nil {
		return err
	}
	l, err := b.line(n)
	if err != nil {
		return err
	}
	return l.carry(ctx, c)
}

// line returns the unbroken line to a node, a new one if need be.
func (b *bell) line(n node) (*line, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, errClosed
	}
	l := b.lines[n.id]
	if l == nil {
		l = newLine(b, n)
		b.lines[n.id] = l
		b.work.Go(l.read)
	}
	return l, nil
}

// fail tells those who wait for a channel's first confirmation that it will not
// come. A channel that was confirmed before is left alone.
func (b *bell) fail(c *channel, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.confirmed || c.err != nil {
		return
	}
	c.err = err
	close(c.ready)
	if b.channels[c.name] == c {
		delete(b.channels, c.name)
	}
}

// move puts channels whose line broke on new lines, as long as somebody listens
// to them. Confirmation rings for them.
func (b *bell) move(channels []*channel) {
	for try := 0; len(channels) > 0; try++ {
		if !pause(b.ctx, moveBackoff(try)) {
			return
		}
		var left []*channel
		for _, c := range channels {
			if !b.wanted(c) {
				continue
			}
			ctx, cancel := context.WithTimeout(b.ctx, checkEvery)
			err := b.attach(ctx, c)
			cancel()
			if err != nil {
				left = append(left, c)
			}
		}
		channels = left
	}
}

// wanted reports whether somebody listens to c and no line carries it.
func (b *bell) wanted(c *channel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.channels[c.name] == c && c.line == nil
}

// moveBackoff is the pause before channels move, drawn at random so that the
// clients of a server that restarts do not come all at once.
func moveBackoff(try int) time.Duration {
	d := min(10*time.Millisecond<<min(try, 10), time.Second)
	return d/2 + rand.N(d/2)
}

// pause waits for d and reports whether ctx still lives then.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// close ends every line and returns once nothing of the bell runs any more.
func (b *bell) close() {
	b.mu.Lock()
	b.cancel()
	var lines []*line
	for _, l := range b.lines {
		lines = append(lines, l)
	}
	b.mu.Unlock()
	for _, l := range lines {
		l.breakDown(errClosed)
	}
	b.work.Wait()
}
