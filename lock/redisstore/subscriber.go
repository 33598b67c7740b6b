package redisstore

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// subscriber receives the messages that wake waiters when their lock is released. It
// keeps one subscription connection for each node, however many locks are waited for.
//
// Ground rules:
//
//  1. subscriber.mu guards every field of the subscriber, its channels and its conns
//     that is not constant. It is never held during network I/O.
//  2. A conn is one connection and never reconnects. When it breaks, its channels move
//     to a new conn. Their waiters are woken then, since a message may have been missed
//     in between.
//  3. conn.order is held while a conn's subscriptions change and the change is sent, so
//     that the server receives changes in the order in which they were made. The
//     sender's context bounds it. It is taken before mu. Only the subscriber's own
//     goroutines wait for it, never a caller: to connect may take longer than the caller has.
type subscriber struct {
	store *Store

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup // readers, health checks and movers; added to under mu

	moveTimeout time.Duration // of a channel of a broken conn; tests lengthen it

	mu       sync.Mutex
	conns    map[string]*conn       // the unbroken ones, by node
	channels map[channelID]*channel // those with a listener
}

// errClosed is the error of subscribing on a closed store.
var errClosed = errors.New("redisstore: the store is closed")

func newSubscriber(store *Store) *subscriber {
	s := &subscriber{
		store: store, moveTimeout: checkEvery,
		conns: make(map[string]*conn), channels: make(map[channelID]*channel),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// handler is a channel that a waiter subscribes to, and the parser of its messages.
type handler struct {
	channel key
	// parse returns the notice for a message; ok is false if there is none.
	parse func(s *Store, payload string) (n driver.Notice, ok bool)
}

// askAgain parses any message as a notice to send the acquire request again.
func askAgain(*Store, string) (driver.Notice, bool) { return driver.Notice{}, true }

// channel is one channel with its listeners.
type channel struct {
	channelID
	listeners map[*listener]struct{}
	conn      *conn // carries the channel; nil while the channel moves

	// ready is closed when the server confirms the channel for the first time, or when
	// the subscription fails; err is the reason then.
	ready     chan struct{}
	confirmed bool
	err       error
}

// notifyAll makes every listener ask again. The caller holds subscriber.mu.
func (c *channel) notifyAll() {
	for l := range c.listeners {
		l.notify(driver.Notice{})
	}
}

// deliver passes a message to the listeners. The caller holds subscriber.mu.
func (c *channel) deliver(s *Store, payload string) {
	for l := range c.listeners {
		if n, ok := l.handler.parse(s, payload); ok {
			l.notify(n)
		}
	}
}

// listener is the interest of one subscription in one channel.
type listener struct {
	channel *channel
	handler handler
	notify  func(driver.Notice)
}

// subscription is one waiter's subscription to all its channels.
type subscription struct {
	subscriber *subscriber
	listeners  []*listener
}

// Subscribe calls notify for every message on the lock's channels.
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	k, err := s.kindOf(h.Kind)
	if err != nil {
		return nil, err
	}
	at, err := s.names.key(h.Name)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil { // the confirmation might come before it is looked at
		return nil, fault.Classify(err)
	}
	return s.subscriber.subscribe(ctx, k.handlers(at, h), notify)
}

// subscribe returns once the server has confirmed every channel.
func (s *subscriber) subscribe(ctx context.Context, handlers []handler, notify func(driver.Notice)) (driver.Subscription, error) {
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

// listen adds a channel to the subscription. If the server has not been asked for the
// channel yet, listen also appends it to added.
func (sub *subscription) listen(id channelID, h handler, notify func(driver.Notice), added []*channel) ([]*channel, error) {
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

// attachAll subscribes to channels one after the other, in the background. The connection
// carries the channels of other callers, so it must not end with the first caller's
// context. A longer deadline of the caller is kept.
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

// confirmed waits until the server confirms c.
func (sub *subscription) confirmed(ctx context.Context, c *channel) error {
	select {
	case <-c.ready:
	case <-ctx.Done():
		return fault.Classify(ctx.Err())
	}
	sub.subscriber.mu.Lock()
	defer sub.subscriber.mu.Unlock()
	return c.err
}

// addListener adds a listener. added is true for the channel's first listener, whose
// caller has to subscribe to the channel at the server.
func (s *subscriber) addListener(id channelID, h handler, notify func(driver.Notice)) (l *listener, added bool, err error) {
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

// Close ends the subscription, and in the background each channel that has no other
// listener.
func (sub *subscription) Close() {
	for _, l := range slices.Backward(sub.listeners) {
		sub.subscriber.removeListener(l)
	}
}

// removeListener removes a listener, and its channel with the last one.
func (s *subscriber) removeListener(l *listener) {
	c := l.channel
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.listeners, l)
	if len(c.listeners) > 0 || s.channels[c.channelID] != c {
		return
	}
	delete(s.channels, c.channelID)
	if carrying := c.conn; carrying != nil && s.ctx.Err() == nil {
		s.work.Go(func() { carrying.remove(c) })
	}
}

// attach subscribes to a channel on the conn to the channel's node.
func (s *subscriber) attach(ctx context.Context, c *channel) error {
	n, err := s.store.node(ctx, c.channelID)
	if err != nil {
		return err
	}
	return s.attachTo(ctx, n, c)
}

// attachTo subscribes to a channel on a node. A conn may break, as an idle one does, before
// it carries the channel. Then there is no request that could have failed, and another conn
// takes its place.
func (s *subscriber) attachTo(ctx context.Context, n node, c *channel) error {
	for {
		cn, err := s.connTo(n)
		if err != nil {
			return err
		}
		if err := cn.add(ctx, c); err != errBroken { //nolint:errorlint // it is made here and never wrapped
			return err
		}
	}
}

// connTo returns the unbroken conn to a node, and makes one if there is none.
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

// fail ends the wait for a channel's first confirmation with err. It ignores a channel
// that was confirmed before.
func (s *subscriber) fail(c *channel, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(c, err)
}

// failed is fail for a caller that holds mu.
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

// move puts the channels of a broken conn on new conns, as long as they have listeners.
// The confirmation of a moved channel notifies its listeners.
func (s *subscriber) move(channels []*channel) {
	for try := 0; len(channels) > 0; try++ {
		if !pause(s.ctx, moveBackoff(try)) {
			return
		}
		channels = s.moveOnce(channels)
	}
}

// moveOnce tries to move the channels, those of all nodes at once, and returns those that are
// left.
func (s *subscriber) moveOnce(channels []*channel) (left []*channel) {
	ctx, cancel := context.WithTimeout(s.ctx, s.moveTimeout)
	defer cancel()
	parts := make(map[node][]*channel)
	for _, c := range channels {
		if s.unwanted(c) {
			continue
		}
		n, err := s.store.node(ctx, c.channelID)
		if err != nil {
			left = append(left, c)
			continue
		}
		parts[n] = append(parts[n], c)
	}
	var mu sync.Mutex // guards left
	var work sync.WaitGroup
	for n, part := range parts {
		work.Go(func() {
			failed := s.moveTo(n, part)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, failed...)
		})
	}
	work.Wait()
	return left
}

// moveTo moves channels to a node, and returns those that are left. After a failure it does not
// try the others: the failure took time, and they may belong to another node by then.
func (s *subscriber) moveTo(n node, channels []*channel) (left []*channel) {
	for i, c := range channels {
		ctx, cancel := context.WithTimeout(s.ctx, s.moveTimeout)
		err := s.attachTo(ctx, n, c)
		cancel()
		if err != nil {
			return channels[i:]
		}
	}
	return nil
}

// unwanted reports whether c has no listener any more, or is on a conn already.
func (s *subscriber) unwanted(c *channel) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.wants(c)
}

// wants reports whether c has a listener and no conn. The caller holds subscriber.mu.
func (s *subscriber) wants(c *channel) bool { return s.channels[c.channelID] == c && c.conn == nil }

// moveBackoff returns the pause before channels move. It is random, so that the clients
// of a server that restarts do not reconnect all at once.
func moveBackoff(try int) time.Duration {
	d := min(10*time.Millisecond<<min(try, 10), time.Second)
	return d/2 + rand.N(d/2)
}

// pause waits for d and reports whether ctx is still alive then.
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

// close ends every conn and waits for the subscriber's goroutines.
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
