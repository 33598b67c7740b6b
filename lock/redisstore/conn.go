package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkEvery is how often a line on which nothing is heard is checked. A mute one
// is given up after the second check.
const checkEvery = 3 * time.Second

// attachWithin is for how long a channel is asked for at least, and a connection made with
// the first one, however impatient the caller is.
const attachWithin = 2 * time.Second

// errUnresponsive breaks a line on which a ping goes unanswered.
var errUnresponsive = errors.New("redisstore: the subscription connection is mute")

// line is one subscription connection to one node. See the ground rules of bell.
type conn struct {
	subscriber *subscriber
	node       node
	pubsub     *redis.PubSub

	order    sync.Mutex  // see ground rule 3
	received atomic.Bool // something was received since the last check

	// begun is closed when there is something to read: a first request was sent,
	// or the line is broken.
	begun chan struct{}
	begin func()

	// Guarded by subscriber.mu.
	channels map[string]*channelState // by channel name
	broken   bool
	pinged   bool
	health   *time.Timer
}

// channelState is what a line knows of one channel name.
type channelState struct {
	// channel is who is told of messages; nil once nobody listens any more.
	channel *channel
	// asked and retired count the requests whose confirmation is still to come.
	// Only the confirmation of the last request tells how things stand.
	subscribing, unsubscribing int
}

func newConn(s *subscriber, n node) *conn {
	cn := &conn{
		subscriber: s,
		node:       n,
		pubsub:     n.client.Subscribe(s.ctx), // without channels nothing is sent yet
		begun:      make(chan struct{}),
		channels:   make(map[string]*channelState),
	}
	cn.begin = sync.OnceFunc(func() { close(cn.begun) })
	cn.health = time.AfterFunc(checkEvery, cn.check)
	return cn
}

// carry asks the server for a channel, unless nobody listens to it any more. It may
// have waited for a while: for the connection to be made.
func (cn *conn) add(ctx context.Context, c *channel) error {
	cn.order.Lock()
	defer cn.order.Unlock()
	if registered, err := cn.register(c); !registered {
		return err
	}
	if err := cn.subscribe(ctx, c.name); err != nil {
		cn.unregister(c)
		cn.breakDown(err)
		err = classify(err)
		cn.subscriber.store.doubtTopology(err)
		return err
	}
	cn.begin()
	return nil
}

// take notes that the line carries c. It fails if the line cannot any more, and does
// nothing for a channel that nobody wants carried: whoever gave it up found no line to
// retire it from.
func (cn *conn) register(c *channel) (registered bool, err error) {
	cn.subscriber.mu.Lock()
	defer cn.subscriber.mu.Unlock()
	switch {
	case !cn.subscriber.wants(c):
		return false, nil
	case cn.broken:
		return false, errUnresponsive
	}
	k := cn.channels[c.name]
	if k == nil {
		k = &channelState{}
		cn.channels[c.name] = k
	}
	k.channel = c
	k.subscribing++
	c.conn = cn
	return true, nil
}

// leave forgets a channel that could not be asked for. It is still its bringer's to
// put on another line, and must not be moved by this one's end as well.
func (cn *conn) unregister(c *channel) {
	cn.subscriber.mu.Lock()
	defer cn.subscriber.mu.Unlock()
	if k := cn.channels[c.name]; k != nil && k.channel == c {
		k.channel, c.conn = nil, nil
	}
}

// retire tells the server that nobody listens to c any more.
func (cn *conn) remove(c *channel) {
	cn.order.Lock()
	defer cn.order.Unlock()
	cn.subscriber.mu.Lock()
	k := cn.channels[c.name]
	if cn.broken || k == nil || k.channel != c {
		cn.subscriber.mu.Unlock()
		return
	}
	k.channel = nil
	k.unsubscribing++
	cn.subscriber.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), checkEvery)
	defer cancel()
	if err := cn.unsubscribe(ctx, c.name); err != nil {
		cn.breakDown(err)
	}
}

func (cn *conn) subscribe(ctx context.Context, name string) error {
	if cn.node.sharded {
		return cn.pubsub.SSubscribe(ctx, name)
	}
	return cn.pubsub.Subscribe(ctx, name)
}

func (cn *conn) unsubscribe(ctx context.Context, name string) error {
	if cn.node.sharded {
		return cn.pubsub.SUnsubscribe(ctx, name)
	}
	return cn.pubsub.Unsubscribe(ctx, name)
}

// offline is the context of everything that happens on an established connection.
// With it go-redis cannot connect again behind our back when the connection
// fails: to know of the failure is the point. Reads and writes are not bounded by
// it, since it has no deadline.
var offline = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// read receives until the line breaks.
func (cn *conn) read() {
	<-cn.begun
	for {
		message, err := cn.pubsub.Receive(offline)
		if err != nil {
			cn.breakDown(err)
			return
		}
		cn.received.Store(true)
		switch m := message.(type) {
		case *redis.Message:
			cn.message(m)
		case *redis.Subscription:
			cn.confirm(m)
		}
	}
}

func (cn *conn) message(m *redis.Message) {
	cn.subscriber.mu.Lock()
	defer cn.subscriber.mu.Unlock()
	if k := cn.channels[m.Channel]; k != nil && k.channel != nil {
		k.channel.deliver(cn.subscriber.store, m.Payload)
	}
}

// confirm takes the server's word that a subscription began or ended.
func (cn *conn) confirm(m *redis.Subscription) {
	s := cn.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	k := cn.channels[m.Channel]
	if k == nil {
		return
	}
	switch m.Kind {
	case "subscribe", "ssubscribe":
		k.subscribing--
	case "unsubscribe", "sunsubscribe":
		if k.unsubscribing == 0 {
			cn.evicted(k)
			return
		}
		k.unsubscribing--
	}
	if k.subscribing > 0 || k.unsubscribing > 0 {
		return
	}
	c := k.channel
	switch {
	case c == nil, c.err != nil: // nobody listens, or was told that it has failed, as when the line breaks now
		delete(cn.channels, m.Channel)
	case c.confirmed:
		c.notifyAll()
	default:
		c.confirmed = true
		close(c.ready)
	}
}

// evicted moves a channel that the server has dropped by itself: its slot now
// belongs to another node. The caller holds mu.
func (cn *conn) evicted(k *channelState) {
	c := k.channel
	if c == nil {
		return
	}
	delete(cn.channels, c.name)
	c.conn = nil
	if cn.subscriber.ctx.Err() == nil {
		cn.subscriber.work.Go(func() { cn.subscriber.move([]*channel{c}) })
	}
}

// check finds out whether a line that is not heard still lives. One that carries
// nothing is given up.
func (cn *conn) check() {
	s := cn.subscriber
	s.mu.Lock()
	if cn.broken {
		s.mu.Unlock()
		return
	}
	s.work.Add(1)
	defer s.work.Done()
	idle := len(cn.channels) == 0
	unresponsive := cn.pinged && !cn.received.Load()
	cn.pinged = !cn.received.Swap(false)
	ping := cn.pinged
	s.mu.Unlock()
	switch {
	case idle, unresponsive:
		cn.breakDown(errUnresponsive)
		return
	case ping:
		if err := cn.pubsub.Ping(offline); err != nil {
			cn.breakDown(err)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !cn.broken {
		cn.health.Reset(checkEvery)
	}
}

// breakDown ends the line. Its channels move; those that were never confirmed
// fail with err. Only the first call does anything.
func (cn *conn) breakDown(err error) {
	s := cn.subscriber
	s.mu.Lock()
	if cn.broken {
		s.mu.Unlock()
		return
	}
	cn.broken = true
	delete(s.conns, cn.node.id)
	var lost, unconfirmed []*channel
	for _, k := range cn.channels {
		switch c := k.channel; {
		case c == nil:
		case c.confirmed:
			c.conn = nil
			lost = append(lost, c)
		default:
			unconfirmed = append(unconfirmed, c)
		}
	}
	if len(lost) > 0 && s.ctx.Err() == nil {
		s.work.Go(func() { s.move(lost) })
	}
	cn.health.Stop()
	s.mu.Unlock()

	err = classify(err)
	for _, c := range unconfirmed {
		s.fail(c, err)
	}
	_ = cn.pubsub.Close()
	cn.begin()
	if len(lost)+len(unconfirmed) > 0 && s.ctx.Err() == nil {
		s.store.doubtTopology(err)
	}
}
