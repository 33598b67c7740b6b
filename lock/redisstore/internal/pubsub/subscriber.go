// Package pubsub receives the messages of a Redis server, or of the nodes of a cluster.
package pubsub

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
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
	// CheckEvery is the interval of a conn's checks; tests lengthen it.
	CheckEvery time.Duration
	// MoveTimeout bounds the move of a channel of a broken conn; tests lengthen it.
	MoveTimeout time.Duration

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup // readers, health checks and movers; added to under mu

	mu       sync.Mutex
	conns    map[string]*conn     // the unbroken ones, by node
	channels map[Channel]*channel // those with a listener
	made     uint64               // how many channels were made
	lost     map[int][]*channel   // those that are about to move, by their losses before
}

// ErrClosed is the error of subscribing on a closed store.
var ErrClosed = errors.New("redisstore: the store is closed")

// New returns a subscriber. node returns the node of a channel's subscription. doubt is called
// with the errors of connections, after which channels may be on other nodes.
func New(node func(context.Context, Channel) (Node, error), doubt func(error)) *Subscriber {
	s := &Subscriber{
		node: node, doubt: doubt, CheckEvery: checkEvery, MoveTimeout: checkEvery,
		conns: make(map[string]*conn), channels: make(map[Channel]*channel), lost: make(map[int][]*channel),
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

// Node is the node on which a channel is subscribed. With another ID it may be another server.
type Node struct {
	ID      string
	Sole    bool // it has all channels, none of which has another node
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
	lost      bool  // it is in Subscriber.lost
	losses    int   // since the server confirmed the channel last

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
		c := s.channels[h.Channel]
		if c == nil {
			s.made++
			c = &channel{Channel: h.Channel, number: s.made, listeners: make(map[*listener]struct{}), ready: make(chan struct{})}
			s.channels[h.Channel] = c
			added = append(added, c)
		}
		l := &listener{channel: c, parse: h.Parse, notify: notify}
		c.listeners[l] = struct{}{}
		sub.listeners = append(sub.listeners, l)
	}
	if len(added) == 0 {
		return sub, nil
	}
	// The connection carries the channels of other callers, so it must not end with the first
	// caller's context. A longer deadline of the caller is kept.
	within := attachWithin
	if deadline, ok := ctx.Deadline(); ok {
		within = max(within, time.Until(deadline))
	}
	s.work.Go(func() { s.attachAll(added, len(added), within) })
	return sub, nil
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

// Close ends the subscription, and in the background each channel that has no other listener:
// those of a conn in the reverse of their order, so that no server has a later one without those
// before it.
func (sub *subscription) Close() {
	s := sub.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	left := make(map[*conn][]*channel)
	for _, l := range slices.Backward(sub.listeners) {
		c := l.channel
		delete(c.listeners, l)
		if len(c.listeners) > 0 || s.channels[c.Channel] != c {
			continue
		}
		delete(s.channels, c.Channel)
		if c.conn != nil {
			left[c.conn] = append(left[c.conn], c)
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

// attachAll subscribes to channels: on all nodes at once, on each in their order, and to so many by
// one request, which has so much time. With shards a request is for one slot, and a latch with a
// hash tag has channels in two.
func (s *Subscriber) attachAll(channels []*channel, together int, within time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, within)
	defer cancel()
	var nodes []Node // in the order of their first channels
	parts := make(map[Node][]*channel)
	for _, c := range channels {
		n, err := s.node(ctx, c.Channel)
		if err != nil {
			s.lose(nil, err, c)
			continue
		}
		if parts[n] == nil {
			nodes = append(nodes, n)
		}
		parts[n] = append(parts[n], c)
	}
	var work sync.WaitGroup
	for _, n := range nodes {
		work.Go(func() {
			part, err := parts[n], fault.ErrPanicked // if a user's hook ends the goroutine
			defer func() { s.lose(nil, err, part...) }()
			most := together
			if n.Sharded {
				most = 1
			}
			for len(part) > 0 {
				some := part[:min(most, len(part))]
				ctx, cancel := context.WithTimeout(s.ctx, within)
				failed := s.attach(ctx, n, some)
				cancel()
				if failed != nil { // which took time: the others may belong to another node by now
					err = failed
					return
				}
				part = part[len(some):]
			}
		})
	}
	work.Wait()
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
	}
	return cn, nil
}

// lose ends the wait for the first confirmation of channels with err, and moves those that were
// confirmed before. from has carried the channels; nil if no conn has. It ignores those that
// another conn carries by now.
func (s *Subscriber) lose(from *conn, err error, channels ...*channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loseNow(from, err, channels...)
}

// loseNow is lose for a caller that holds mu. Channels that are lost at the same time move
// together, in their order: after 20 to 40 ms others of a slot are lost, too, and the new topology
// may be known. The pause doubles with each loss of a channel, since a server may go on to refuse it.
func (s *Subscriber) loseNow(from *conn, err error, channels ...*channel) {
	for _, c := range channels {
		if c.conn != from {
			continue
		}
		c.conn = nil
		switch {
		case !c.confirmed && c.err == nil:
			c.err = err
			close(c.ready)
			if s.channels[c.Channel] == c {
				delete(s.channels, c.Channel)
			}
		case !c.lost && s.wants(c) && s.ctx.Err() == nil:
			losses := c.losses
			if len(s.lost[losses]) == 0 {
				s.work.Go(func() { s.move(losses) })
			}
			s.lost[losses] = append(s.lost[losses], c)
			c.lost = true
			c.losses++
		}
	}
}

// The pauses before channels move.
const (
	firstMove = 40 * time.Millisecond
	mostMove  = time.Second
)

// move puts the lost channels with so many losses on new conns, as long as they have listeners. The
// confirmation of a moved channel notifies its listeners.
func (s *Subscriber) move(losses int) {
	if !backoff.Sleep(s.ctx, backoff.Pause(losses, firstMove, mostMove)) {
		return
	}
	s.mu.Lock()
	channels := s.lost[losses]
	delete(s.lost, losses)
	channels = slices.DeleteFunc(channels, func(c *channel) bool {
		c.lost = false
		return !s.wants(c)
	})
	s.mu.Unlock()
	slices.SortFunc(channels, func(a, b *channel) int { return cmp.Compare(a.number, b.number) })
	s.attachAll(channels, 1, s.MoveTimeout) // a refusal is for one channel then
}

// wants reports whether c has a listener and no conn. The caller holds subscriber.mu.
func (s *Subscriber) wants(c *channel) bool { return s.channels[c.Channel] == c && c.conn == nil }

// Close ends every conn and waits for the subscriber's goroutines.
func (s *Subscriber) Close() {
	s.mu.Lock()
	s.cancel()
	conns := slices.Collect(maps.Values(s.conns))
	s.mu.Unlock()
	for _, cn := range conns {
		cn.breakDown(ErrClosed)
	}
	s.work.Wait()
}
