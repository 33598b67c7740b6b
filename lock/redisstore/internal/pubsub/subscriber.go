// Package pubsub receives the messages of a Redis server, or of the nodes of a cluster.
package pubsub

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// Subscriber receives the messages that wake waiters when their lock is released. It
// keeps one subscription connection for each node, however many locks are waited for.
//
// Ground rules:
//
//  1. Subscriber.mu guards every field of the subscriber, its channels and its conns
//     that is not constant. It is never held during network I/O.
//  2. A conn is one connection and never reconnects. When it breaks, its channels move
//     to a new conn. Their waiters are woken then, since a message may have been missed
//     in between.
//  3. conn.order is held while a conn's subscriptions change and the change is sent, so
//     that the server receives changes in the order in which they were made. The
//     sender's context bounds it. It is taken before mu. Only the subscriber's own
//     goroutines wait for it, never a caller: to connect may take longer than the caller has.
type Subscriber struct {
	// node returns the node of a channel's subscription.
	node func(context.Context, Channel) (Node, error)
	// doubt is called with the errors of connections: the channels may be on other nodes now.
	doubt func(error)
	// MoveTimeout bounds the move of a channel of a broken conn; tests lengthen it.
	MoveTimeout time.Duration

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup // readers, health checks and movers; added to under mu

	mu       sync.Mutex
	conns    map[string]*conn     // the unbroken ones, by node
	channels map[Channel]*channel // those with a listener
	made     uint64               // how many channels were made
}

// ErrClosed is the error of subscribing on a closed store.
var ErrClosed = errors.New("redisstore: the store is closed")

// New returns a subscriber. node returns the node of a channel's subscription. doubt is called
// with the errors of connections, after which channels may be on other nodes.
func New(node func(context.Context, Channel) (Node, error), doubt func(error)) *Subscriber {
	s := &Subscriber{
		node: node, doubt: doubt, MoveTimeout: checkEvery,
		conns: make(map[string]*conn), channels: make(map[Channel]*channel),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Context returns a context that ends with Close.
func (s *Subscriber) Context() context.Context { return s.ctx }

// Channel is a channel of one kind of pub/sub.
type Channel struct {
	Name    string
	Sharded bool
}

// Node is the node on which a channel is subscribed.
type Node struct {
	ID      string
	Sharded bool // if the server has that
	Client  redis.UniversalClient
}

// HasShards asks a node of a cluster whether it has sharded pub/sub, as from Redis 7 on.
func HasShards(ctx context.Context, node redis.UniversalClient) (bool, error) {
	err := node.PubSubShardNumSub(ctx).Err()
	if refused, ok := errors.AsType[redis.Error](err); ok {
		// An old server does not know the subcommand. A server that forbids it will hardly
		// allow the rest.
		text := strings.ToLower(refused.Error())
		if strings.Contains(text, "unknown") || strings.HasPrefix(text, "noperm") {
			return false, nil
		}
	}
	return err == nil, err
}

// most returns how many of so many channels one request subscribes to: with shards it is for one
// slot, and a latch with a hash tag has channels in two.
func (n Node) most(channels int) int {
	if n.Sharded {
		return 1
	}
	return channels
}

// Handler is a channel that a waiter subscribes to, and the parser of its messages.
type Handler struct {
	Channel Channel
	// Parse returns the notice for a message; ok is false if there is none.
	Parse func(payload string) (n driver.Notice, ok bool)
}

// channel is one channel with its listeners.
type channel struct {
	Channel
	number    uint64 // by which channels are ordered: a waiter's have theirs in its order
	listeners map[*listener]struct{}
	conn      *conn // carries the channel; nil while the channel moves

	// ready is closed when the server confirms the channel for the first time, or when
	// the subscription fails; err is the reason then.
	ready     chan struct{}
	confirmed bool
	err       error
}

// deliver passes a message to the listeners. The caller holds subscriber.mu.
func (c *channel) deliver(payload string) {
	for l := range c.listeners {
		if n, ok := l.parse(payload); ok {
			l.notify(n)
		}
	}
}

// listener is the interest of one subscription in one channel.
type listener struct {
	channel *channel
	parse   func(payload string) (driver.Notice, bool)
	notify  func(driver.Notice)
}

// subscription is one waiter's subscription to all its channels.
type subscription struct {
	subscriber *Subscriber
	listeners  []*listener
}

// Subscribe calls notify for what the handlers return. It returns once the server has confirmed
// every channel.
func (s *Subscriber) Subscribe(ctx context.Context, handlers []Handler, notify func(driver.Notice)) (driver.Subscription, error) {
	if err := ctx.Err(); err != nil { // the confirmation might come before it is looked at
		return nil, fault.Classify(err)
	}
	sub, err := s.subscribe(ctx, handlers, notify)
	if err != nil {
		return nil, err
	}
	if err := sub.confirmed(ctx); err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// subscribe adds the listeners of a waiter, all in one step: of two waiters with the same
// channels, one subscribes to all of them, in their order.
func (s *Subscriber) subscribe(ctx context.Context, handlers []Handler, notify func(driver.Notice)) (*subscription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	sub := &subscription{subscriber: s}
	var added []*channel
	for _, h := range handlers {
		l, first := s.addListener(h, notify)
		sub.listeners = append(sub.listeners, l)
		if first {
			added = append(added, l.channel)
		}
	}
	s.attachAll(ctx, added)
	return sub, nil
}

// attachAll subscribes to the channels of a waiter in the background, to those of a node
// together. The connection carries the channels of other callers, so it must not end with the
// first caller's context. A longer deadline of the caller is kept. The caller holds mu.
func (s *Subscriber) attachAll(ctx context.Context, added []*channel) {
	if len(added) == 0 {
		return
	}
	by := time.Now().Add(attachWithin)
	if deadline, ok := ctx.Deadline(); ok && deadline.After(by) {
		by = deadline
	}
	s.work.Go(func() {
		ctx, cancel := context.WithDeadline(s.ctx, by)
		defer cancel()
		for _, p := range s.parts(ctx, added, s.fail) {
			for some := range slices.Chunk(p.channels, p.node.most(len(p.channels))) {
				if err := s.attach(ctx, p.node, some); err != nil {
					for _, c := range some {
						s.fail(c, err)
					}
				}
			}
		}
	})
}

// confirmed waits until the server confirms every channel.
func (sub *subscription) confirmed(ctx context.Context) error {
	done := ctx.Done()
	for _, l := range sub.listeners {
		select {
		case <-l.channel.ready: // then err is constant
			if err := l.channel.err; err != nil {
				return err
			}
		case <-done:
			return fault.Classify(ctx.Err())
		}
	}
	return nil
}

// addListener adds a listener. added is true for the channel's first listener, whose
// caller has to subscribe to the channel at the server. The caller holds mu.
func (s *Subscriber) addListener(h Handler, notify func(driver.Notice)) (l *listener, added bool) {
	c := s.channels[h.Channel]
	if c == nil {
		added = true
		s.made++
		c = &channel{Channel: h.Channel, number: s.made, listeners: make(map[*listener]struct{}), ready: make(chan struct{})}
		s.channels[h.Channel] = c
	}
	l = &listener{channel: c, parse: h.Parse, notify: notify}
	c.listeners[l] = struct{}{}
	return l, added
}

// Close ends the subscription, and in the background each channel that has no other listener:
// those of a conn in the reverse of their order, so that no server has a later one without those
// before it.
func (sub *subscription) Close() {
	s := sub.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	left := make(map[*conn][]*channel)
	for _, l := range slices.Backward(sub.listeners) {
		if carrying := s.removeListener(l); carrying != nil {
			left[carrying] = append(left[carrying], l.channel)
		}
	}
	if s.ctx.Err() != nil {
		return
	}
	for carrying, channels := range left {
		s.work.Go(func() {
			for _, c := range channels {
				carrying.remove(c)
			}
		})
	}
}

// removeListener removes a listener, and its channel with the last one. It returns the conn that
// carries that channel, if any. The caller holds mu.
func (s *Subscriber) removeListener(l *listener) (carrying *conn) {
	c := l.channel
	delete(c.listeners, l)
	if len(c.listeners) > 0 || s.channels[c.Channel] != c {
		return nil
	}
	delete(s.channels, c.Channel)
	return c.conn
}

// part is the channels on one node.
type part struct {
	node     Node
	channels []*channel
}

// parts returns the parts of channels, in the order of their first channels. It calls failed
// for a channel whose node it does not find.
func (s *Subscriber) parts(ctx context.Context, channels []*channel, failed func(*channel, error)) (parts []part) {
	for _, c := range channels {
		n, err := s.node(ctx, c.Channel)
		if err != nil {
			failed(c, err)
			continue
		}
		i := slices.IndexFunc(parts, func(p part) bool { return p.node == n })
		if i < 0 {
			i, parts = len(parts), append(parts, part{node: n})
		}
		parts[i].channels = append(parts[i].channels, c)
	}
	return parts
}

// attach subscribes to channels on a node. A conn may break, as an idle one does, before
// it carries the channels. Then there is no request that could have failed, and another conn
// takes its place.
func (s *Subscriber) attach(ctx context.Context, n Node, channels []*channel) error {
	for {
		cn, err := s.connTo(n)
		if err != nil {
			return err
		}
		if err := cn.add(ctx, channels); err != errBroken { //nolint:errorlint // it is made here and never wrapped
			return err
		}
	}
}

// connTo returns the unbroken conn to a node, and makes one if there is none.
func (s *Subscriber) connTo(n Node) (*conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return nil, ErrClosed
	}
	cn := s.conns[n.ID]
	if cn == nil {
		cn = newConn(s, n)
		s.conns[n.ID] = cn
		s.work.Go(cn.read)
	}
	return cn, nil
}

// fail ends the wait for a channel's first confirmation with err. It ignores a channel
// that was confirmed before.
func (s *Subscriber) fail(c *channel, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed(c, err)
}

// failed is fail for a caller that holds mu.
func (s *Subscriber) failed(c *channel, err error) {
	if c.confirmed || c.err != nil {
		return
	}
	c.err = err
	close(c.ready)
	if s.channels[c.Channel] == c {
		delete(s.channels, c.Channel)
	}
}

// move puts the channels of a broken conn on new conns, as long as they have listeners.
// The confirmation of a moved channel notifies its listeners.
func (s *Subscriber) move(channels []*channel) {
	for try := 0; len(channels) > 0; try++ {
		if !pause(s.ctx, moveBackoff(try)) {
			return
		}
		channels = s.moveOnce(channels)
	}
}

// moveOnce tries to move the channels, those of all nodes at once, and returns those that are
// left.
func (s *Subscriber) moveOnce(channels []*channel) (left []*channel) {
	ctx, cancel := context.WithTimeout(s.ctx, s.MoveTimeout)
	defer cancel()
	s.mu.Lock()
	channels = slices.DeleteFunc(channels, func(c *channel) bool { return !s.wants(c) })
	s.mu.Unlock()
	parts := s.parts(ctx, channels, func(c *channel, _ error) { left = append(left, c) })
	var mu sync.Mutex // guards left
	var work sync.WaitGroup
	for _, p := range parts {
		work.Go(func() {
			failed := s.moveTo(p)
			mu.Lock()
			defer mu.Unlock()
			left = append(left, failed...)
		})
	}
	work.Wait()
	return left
}

// moveTo moves channels to their node, one after the other, since there may be many. It
// returns those that are left. After a failure it does not try the others: the failure took
// time, and they may belong to another node by then.
func (s *Subscriber) moveTo(p part) (left []*channel) {
	for i := range p.channels {
		ctx, cancel := context.WithTimeout(s.ctx, s.MoveTimeout)
		err := s.attach(ctx, p.node, p.channels[i:i+1])
		cancel()
		if err != nil {
			return p.channels[i:]
		}
	}
	return nil
}

// wants reports whether c has a listener and no conn. The caller holds subscriber.mu.
func (s *Subscriber) wants(c *channel) bool { return s.channels[c.Channel] == c && c.conn == nil }

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

// Close ends every conn and waits for the subscriber's goroutines.
func (s *Subscriber) Close() {
	s.mu.Lock()
	s.cancel()
	var conns []*conn
	for _, cn := range s.conns {
		conns = append(conns, cn)
	}
	s.mu.Unlock()
	for _, cn := range conns {
		cn.breakDown(ErrClosed)
	}
	s.work.Wait()
}
