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

// subscriber rings for waiters when their lock is released. However many locks are
// waited for, it has one subscription connection for each node.
//
// Ground rules:
//
//  1. subscriber.mu guards every field of the bell, its channels and its lines that is
//     not constant. It is never held while a server is spoken to.
//  2. A line is one connection and never connects again. When it breaks, its
//     channels move to a new one, and whoever waits on them is woken then, for a
//     message may have been missed in between.
//  3. line.order is held while a line's subscriptions change and the change is
//     sent, so that the server hears of changes in the order in which they were
//     made. The sender's context bounds it. It is registered before mu.
type subscriber struct {
	store *Store

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup // readers, health checks and movers; added to under mu

	mu       sync.Mutex
	conns    map[string]*conn       // the unbroken ones, by node
	channels map[channelID]*channel // those that somebody listens to
}

// errClosed is returned by a subscription to a closed store.
var errClosed = errors.New("redisstore: the store is closed")

func newSubscriber(store *Store) *subscriber {
	s := &subscriber{store: store, conns: make(map[string]*conn), channels: make(map[channelID]*channel)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// ear is a channel that a waiter listens to, and what the messages there mean.
type handler struct {
	channel string
	// read returns what a message tells a waiter of the store; ok is false if nothing.
	parse func(s *Store, payload string) (n lock.Notice, ok bool)
}

// askAgain is the meaning of most messages, whatever they say.
func askAgain(*Store, string) (lock.Notice, bool) { return lock.Notice{}, true }

// channel is one channel that somebody listens to.
type channel struct {
	channelID
	listeners map[*listener]struct{}
	conn      *conn // carries the channel; nil while it moves

	// ready is closed once the server has confirmed the channel for the first
	// time, or will not: then err says why.
	ready     chan struct{}
	confirmed bool
	err       error
}

// ring has whoever listens ask again. The caller holds subscriber.mu.
func (c *channel) notifyAll() {
	for l := range c.listeners {
		l.notify(lock.Notice{})
	}
}

// say passes a message on. The caller holds subscriber.mu.
func (c *channel) deliver(s *Store, payload string) {
	for l := range c.listeners {
		if n, ok := l.handler.parse(s, payload); ok {
			l.notify(n)
		}
	}
}

// listener is one of those who listen to a channel.
type listener struct {
	channel *channel
	handler handler
	notify  func(lock.Notice)
}

// subscription is a waiter's, to all its channels.
type subscription struct {
	subscriber *subscriber
	listeners  []*listener
}

// Subscribe has tell called for whatever is published on the lock's channels.
func (s *Store) Subscribe(ctx context.Context, h *lock.Hold, notify func(lock.Notice)) (lock.Subscription, error) {
	k, err := s.kindOf(h.Kind)
	if err != nil {
		return nil, err
	}
	if h, err = s.names.hold(h); err != nil {
		return nil, err
	}
	return s.subscriber.subscribe(ctx, k.handlers(h), notify)
}

// subscribe returns once the server has confirmed every channel.
func (s *subscriber) subscribe(ctx context.Context, handlers []handler, notify func(lock.Notice)) (lock.Subscription, error) {
	sub := &subscription{subscriber: s}
	var added []*channel
	for _, h := range handlers {
		ids, err := s.store.channels(ctx, h.channel)
		for i := 0; i < len(ids) && err == nil; i++ {
			added, err = sub.listen(ids[i], h, notify, added)
		}
		if err != nil {
			s.attachAll(ctx, added) // others may listen to them by now
			sub.Close()
			return nil, err
		}
	}
	s.attachAll(ctx, added)
	for _, l := range sub.listeners {
		if err := sub.confirmed(ctx, l.channel); err != nil {
			sub.Close()
			return nil, err
		}
	}
	return sub, nil
}

// listen adds a channel to the subscription, and to added if the server has yet to be
// asked for it.
func (sub *subscription) listen(id channelID, h handler, notify func(lock.Notice), added []*channel) ([]*channel, error) {
	l, first, err := sub.subscriber.addListener(id, h, notify)
	if err != nil {
		return added, err
	}
	sub.listeners = append(sub.listeners, l)
	if first {
		added = append(added, l.channel)
	}
	return added, nil
}

// attachAll asks the servers for channels, one after the other, in the background: a
// connection, and the channels of other callers on it, must not end with the context of
// the caller that happens to be the first. A patient caller's deadline is kept to.
func (s *subscriber) attachAll(ctx context.Context, added []*channel) {
	if len(added) == 0 {
		return
	}
	by := time.Now().Add(attachWithin)
	if deadline, ok := ctx.Deadline(); ok && deadline.After(by) {
		by = deadline
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		for _, c := range added {
			s.failed(c, errClosed)
		}
		return
	}
	s.work.Go(func() {
		for _, c := range added {
			ctx, cancel := context.WithDeadline(s.ctx, by)
			if err := s.attach(ctx, c); err != nil {
				s.fail(c, err)
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
	sub.subscriber.mu.Lock()
	defer sub.subscriber.mu.Unlock()
	return c.err
}

// enlist adds a listener. added says that it is the channel's first, whose part it
// is to ask the server for the channel.
func (s *subscriber) addListener(id channelID, h handler, notify func(lock.Notice)) (l *listener, added bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, false, errClosed
	}
	c := s.channels[id]
	if c == nil {
		added = true
		c = &channel{channelID: id, listeners: make(map[*listener]struct{}), ready: make(chan struct{})}
		s.channels[id] = c
	}
	l = &listener{channel: c, handler: h, notify: notify}
	c.listeners[l] = struct{}{}
	return l, added, nil
}

// Close ends the subscription, and with the last one of a channel the channel.
func (sub *subscription) Close() {
	for _, l := range slices.Backward(sub.listeners) {
		sub.subscriber.removeListener(l)
	}
}

// dismiss ends a listener.
func (s *subscriber) removeListener(l *listener) {
	c := l.channel
	s.mu.Lock()
	delete(c.listeners, l)
	var carrying *conn
	if len(c.listeners) == 0 && s.channels[c.channelID] == c {
		delete(s.channels, c.channelID)
		carrying = c.conn
	}
	s.mu.Unlock()
	if carrying != nil {
		carrying.remove(c)
	}
}

// attach asks the server for a channel, on the line to the channel's node.
func (s *subscriber) attach(ctx context.Context, c *channel) error {
	n, err := s.store.node(ctx, c.channelID)
	if err != nil {
		return err
	}
	return s.attachTo(ctx, n, c)
}

// attachTo asks a node for a channel.
func (s *subscriber) attachTo(ctx context.Context, n node, c *channel) error {
	cn, err := s.connTo(n)
	if err != nil {
		return err
	}
	return cn.add(ctx, c)
}

// line returns the unbroken line to a node, a new one if need be.
func (s *subscriber) connTo(n node) (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	cn := s.conns[n.id]
	if cn == nil {
		cn = newConn(s, n)
		s.conns[n.id] = cn
		s.work.Go(cn.read)
	}
	return cn, nil
}

// fail tells those who wait for a channel's first confirmation that it will not
// come. A channel that was confirmed before is left alone.
func (s *subscriber) fail(c *channel, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(c, err)
}

// failed is fail, for a caller that holds mu.
func (s *subscriber) failed(c *channel, err error) {
	if c.confirmed || c.err != nil {
		return
	}
	c.err = err
	close(c.ready)
	if s.channels[c.channelID] == c {
		delete(s.channels, c.channelID)
	}
}

// move puts channels whose line broke on new lines, as long as somebody listens
// to them. Confirmation rings for them.
func (s *subscriber) move(channels []*channel) {
	for try := 0; len(channels) > 0; try++ {
		if !pause(s.ctx, moveBackoff(try)) {
			return
		}
		channels = s.moveOnce(channels)
	}
}

// moveOnce tries to move each channel and returns those that are left. A node that
// has failed one is not asked for the others: to find out takes time, and by then it
// may be another node that they belong to.
func (s *subscriber) moveOnce(channels []*channel) (left []*channel) {
	failed := make(map[string]bool)
	for _, c := range channels {
		if s.unwanted(c) {
			continue
		}
		ctx, cancel := context.WithTimeout(s.ctx, checkEvery)
		n, err := s.store.node(ctx, c.channelID)
		if err == nil && !failed[n.id] {
			err = s.attachTo(ctx, n, c)
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
func (s *subscriber) unwanted(c *channel) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.wants(c)
}

// wants reports whether somebody listens to c and no line carries it. The caller holds
// subscriber.mu.
func (s *subscriber) wants(c *channel) bool { return s.channels[c.channelID] == c && c.conn == nil }

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
func (s *subscriber) close() {
	s.mu.Lock()
	s.cancel()
	var conns []*conn
	for _, cn := range s.conns {
		conns = append(conns, cn)
	}
	s.mu.Unlock()
	for _, cn := range conns {
		cn.breakDown(errClosed)
	}
	s.work.Wait()
}
