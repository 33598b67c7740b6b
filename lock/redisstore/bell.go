package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
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
	lines    map[string]*line       // the unbroken ones, by node
	channels map[channelID]*channel // those that somebody listens to
}

// errClosed is returned by a subscription to a closed store.
var errClosed = errors.New("redisstore: the store is closed")

func newBell(s *Store) *bell {
	b := &bell{store: s, lines: make(map[string]*line), channels: make(map[channelID]*channel)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// ear is a channel that a waiter listens to, and what the messages there mean.
type ear struct {
	channel string
	// read returns what a message tells a waiter of the store; ok is false if nothing.
	read func(s *Store, payload string) (n lock.Notice, ok bool)
}

// askAgain is the meaning of most messages, whatever they say.
func askAgain(*Store, string) (lock.Notice, bool) { return lock.Notice{}, true }

// channel is one channel that somebody listens to.
type channel struct {
	channelID
	listeners map[*listener]struct{}
	line      *line // carries the channel; nil while it moves

	// ready is closed once the server has confirmed the channel for the first
	// time, or will not: then err says why.
	ready     chan struct{}
	confirmed bool
	err       error
}

// ring has whoever listens ask again. The caller holds bell.mu.
func (c *channel) ring() {
	for l := range c.listeners {
		l.tell(lock.Notice{})
	}
}

// say passes a message on. The caller holds bell.mu.
func (c *channel) say(s *Store, payload string) {
	for l := range c.listeners {
		if n, ok := l.ear.read(s, payload); ok {
			l.tell(n)
		}
	}
}

// listener is one of those who listen to a channel.
type listener struct {
	channel *channel
	ear     ear
	tell    func(lock.Notice)
}

// subscription is a waiter's, to all its channels.
type subscription struct {
	bell      *bell
	listeners []*listener
}

// Subscribe has tell called for whatever is published on the lock's channels.
func (s *Store) Subscribe(ctx context.Context, h *lock.Hold, tell func(lock.Notice)) (lock.Subscription, error) {
	k, err := s.kindOf(h.Kind)
	if err != nil {
		return nil, err
	}
	if h, err = s.names.hold(h); err != nil {
		return nil, err
	}
	return s.bell.subscribe(ctx, k.ears(h), tell)
}

// subscribe returns once the server has confirmed every channel.
func (b *bell) subscribe(ctx context.Context, ears []ear, tell func(lock.Notice)) (lock.Subscription, error) {
	sub := &subscription{bell: b}
	var fresh []*channel
	for _, e := range ears {
		ids, err := b.store.channels(ctx, e.channel)
		for i := 0; i < len(ids) && err == nil; i++ {
			fresh, err = sub.listen(ids[i], e, tell, fresh)
		}
		if err != nil {
			b.attachAll(ctx, fresh) // others may listen to them by now
			sub.Close()
			return nil, err
		}
	}
	b.attachAll(ctx, fresh)
	for _, l := range sub.listeners {
		if err := sub.confirmed(ctx, l.channel); err != nil {
			sub.Close()
			return nil, err
		}
	}
	return sub, nil
}

// listen adds a channel to the subscription, and to fresh if the server has yet to be
// asked for it.
func (sub *subscription) listen(id channelID, e ear, tell func(lock.Notice), fresh []*channel) ([]*channel, error) {
	l, first, err := sub.bell.enlist(id, e, tell)
	if err != nil {
		return fresh, err
	}
	sub.listeners = append(sub.listeners, l)
	if first {
		fresh = append(fresh, l.channel)
	}
	return fresh, nil
}

// attachAll asks the servers for channels, one after the other, in the background: a
// connection, and the channels of other callers on it, must not end with the context of
// the caller that happens to be the first. A patient caller's deadline is kept to.
func (b *bell) attachAll(ctx context.Context, fresh []*channel) {
	if len(fresh) == 0 {
		return
	}
	by := time.Now().Add(attachWithin)
	if deadline, ok := ctx.Deadline(); ok && deadline.After(by) {
		by = deadline
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		for _, c := range fresh {
			b.failed(c, errClosed)
		}
		return
	}
	b.work.Go(func() {
		for _, c := range fresh {
			ctx, cancel := context.WithDeadline(b.ctx, by)
			if err := b.attach(ctx, c); err != nil {
				b.fail(c, err)
			}
			cancel()
		}
	})
}

// confirmed waits for the server's confirmation.
func (sub *subscription) confirmed(ctx context.Context, c *channel) error {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return classify(ctx.Err())
	}
	sub.bell.mu.Lock()
	defer sub.bell.mu.Unlock()
	return c.err
}

// enlist adds a listener. fresh says that it is the channel's first, whose part it
// is to ask the server for the channel.
func (b *bell) enlist(id channelID, e ear, tell func(lock.Notice)) (l *listener, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, false, errClosed
	}
	c := b.channels[id]
	if c == nil {
		fresh = true
		c = &channel{channelID: id, listeners: make(map[*listener]struct{}), ready: make(chan struct{})}
		b.channels[id] = c
	}
	l = &listener{channel: c, ear: e, tell: tell}
	c.listeners[l] = struct{}{}
	return l, fresh, nil
}

// Close ends the subscription, and with the last one of a channel the channel.
func (sub *subscription) Close() {
	for _, l := range slices.Backward(sub.listeners) {
		sub.bell.dismiss(l)
	}
}

// dismiss ends a listener.
func (b *bell) dismiss(l *listener) {
	c := l.channel
	b.mu.Lock()
	delete(c.listeners, l)
	var carrier *line
	if len(c.listeners) == 0 && b.channels[c.channelID] == c {
		delete(b.channels, c.channelID)
		carrier = c.line
	}
	b.mu.Unlock()
	if carrier != nil {
		carrier.retire(c)
	}
}

// attach asks the server for a channel, on the line to the channel's node.
func (b *bell) attach(ctx context.Context, c *channel) error {
	n, err := b.store.node(ctx, c.channelID)
	if err != nil {
		return err
	}
	return b.attachTo(ctx, n, c)
}

// attachTo asks a node for a channel.
func (b *bell) attachTo(ctx context.Context, n node, c *channel) error {
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
	b.failed(c, err)
}

// failed is fail, for a caller that holds mu.
func (b *bell) failed(c *channel, err error) {
	if c.confirmed || c.err != nil {
		return
	}
	c.err = err
	close(c.ready)
	if b.channels[c.channelID] == c {
		delete(b.channels, c.channelID)
	}
}

// move puts channels whose line broke on new lines, as long as somebody listens
// to them. Confirmation rings for them.
func (b *bell) move(channels []*channel) {
	for try := 0; len(channels) > 0; try++ {
		if !pause(b.ctx, moveBackoff(try)) {
			return
		}
		channels = b.moveOnce(channels)
	}
}

// moveOnce tries to move each channel and returns those that are left. A node that
// has failed one is not asked for the others: to find out takes time, and by then it
// may be another node that they belong to.
func (b *bell) moveOnce(channels []*channel) (left []*channel) {
	failed := make(map[string]bool)
	for _, c := range channels {
		if b.unwanted(c) {
			continue
		}
		ctx, cancel := context.WithTimeout(b.ctx, checkEvery)
		n, err := b.store.node(ctx, c.channelID)
		if err == nil && !failed[n.id] {
			err = b.attachTo(ctx, n, c)
			failed[n.id] = err != nil
		}
		cancel()
		if err != nil || failed[n.id] {
			left = append(left, c)
		}
	}
	return left
}

// unwanted reports whether nobody listens to c any more, or a line carries it.
func (b *bell) unwanted(c *channel) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.wants(c)
}

// wants reports whether somebody listens to c and no line carries it. The caller holds
// bell.mu.
func (b *bell) wants(c *channel) bool { return b.channels[c.channelID] == c && c.line == nil }

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
