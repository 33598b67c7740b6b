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

// errMute breaks a line on which a ping goes unanswered.
var errMute = errors.New("redisstore: the subscription connection is mute")

// line is one subscription connection to one node. See the ground rules of bell.
type line struct {
	bell   *bell
	node   node
	pubsub *redis.PubSub

	order sync.Mutex  // see ground rule 3
	heard atomic.Bool // something was received since the last check

	// begun is closed when there is something to read: a first request was sent,
	// or the line is broken.
	begun chan struct{}
	begin func()

	// Guarded by bell.mu.
	carried map[string]*carriage // by channel name
	broken  bool
	pinged  bool
	health  *time.Timer
}

// carriage is what a line knows of one channel name.
type carriage struct {
	// channel is who is told of messages; nil once nobody listens any more.
	channel *channel
	// asked and retired count the requests whose confirmation is still to come.
	// Only the confirmation of the last request tells how things stand.
	asked, retired int
}

func newLine(b *bell, n node) *line {
	l := &line{
		bell:    b,
		node:    n,
		pubsub:  n.client.Subscribe(b.ctx), // without channels nothing is sent yet
		begun:   make(chan struct{}),
		carried: make(map[string]*carriage),
	}
	l.begin = sync.OnceFunc(func() { close(l.begun) })
	l.health = time.AfterFunc(checkEvery, l.check)
	return l
}

// carry asks the server for a channel, unless nobody listens to it any more. It may
// have waited for a while: for the connection to be made.
func (l *line) carry(ctx context.Context, c *channel) error {
	l.order.Lock()
	defer l.order.Unlock()
	if taken, err := l.take(c); !taken {
		return err
	}
	if err := l.subscribe(ctx, c.name); err != nil {
		l.leave(c)
		l.breakDown(err)
		err = classify(err)
		l.bell.store.doubtTopology(err)
		return err
	}
	l.begin()
	return nil
}

// take notes that the line carries c. It fails if the line cannot any more, and does
// nothing for a channel that nobody wants carried: whoever gave it up found no line to
// retire it from.
func (l *line) take(c *channel) (taken bool, err error) {
	l.bell.mu.Lock()
	defer l.bell.mu.Unlock()
	switch {
	case !l.bell.wants(c):
		return false, nil
	case l.broken:
		return false, errMute
	}
	k := l.carried[c.name]
	if k == nil {
		k = &carriage{}
		l.carried[c.name] = k
	}
	k.channel = c
	k.asked++
	c.line = l
	return true, nil
}

// leave forgets a channel that could not be asked for. It is still its bringer's to
// put on another line, and must not be moved by this one's end as well.
func (l *line) leave(c *channel) {
	l.bell.mu.Lock()
	defer l.bell.mu.Unlock()
	if k := l.carried[c.name]; k != nil && k.channel == c {
		k.channel, c.line = nil, nil
	}
}

// retire tells the server that nobody listens to c any more.
func (l *line) retire(c *channel) {
	l.order.Lock()
	defer l.order.Unlock()
	l.bell.mu.Lock()
	k := l.carried[c.name]
	if l.broken || k == nil || k.channel != c {
		l.bell.mu.Unlock()
		return
	}
	k.channel = nil
	k.retired++
	l.bell.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), checkEvery)
	defer cancel()
	if err := l.unsubscribe(ctx, c.name); err != nil {
		l.breakDown(err)
	}
}

func (l *line) subscribe(ctx context.Context, name string) error {
	if l.node.sharded {
		return l.pubsub.SSubscribe(ctx, name)
	}
	return l.pubsub.Subscribe(ctx, name)
}

func (l *line) unsubscribe(ctx context.Context, name string) error {
	if l.node.sharded {
		return l.pubsub.SUnsubscribe(ctx, name)
	}
	return l.pubsub.Unsubscribe(ctx, name)
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
func (l *line) read() {
	<-l.begun
	for {
		message, err := l.pubsub.Receive(offline)
		if err != nil {
			l.breakDown(err)
			return
		}
		l.heard.Store(true)
		switch m := message.(type) {
		case *redis.Message:
			l.message(m)
		case *redis.Subscription:
			l.confirm(m)
		}
	}
}

func (l *line) message(m *redis.Message) {
	l.bell.mu.Lock()
	defer l.bell.mu.Unlock()
	if k := l.carried[m.Channel]; k != nil && k.channel != nil {
		k.channel.say(l.bell.store, m.Payload)
	}
}

// confirm takes the server's word that a subscription began or ended.
func (l *line) confirm(m *redis.Subscription) {
	b := l.bell
	b.mu.Lock()
	defer b.mu.Unlock()
	k := l.carried[m.Channel]
	if k == nil {
		return
	}
	switch m.Kind {
	case "subscribe", "ssubscribe":
		k.asked--
	case "unsubscribe", "sunsubscribe":
		if k.retired == 0 {
			l.evicted(k)
			return
		}
		k.retired--
	}
	if k.asked > 0 || k.retired > 0 {
		return
	}
	c := k.channel
	switch {
	case c == nil, c.err != nil: // nobody listens, or was told that it has failed, as when the line breaks now
		delete(l.carried, m.Channel)
	case c.confirmed:
		c.ring()
	default:
		c.confirmed = true
		close(c.ready)
	}
}

// evicted moves a channel that the server has dropped by itself: its slot now
// belongs to another node. The caller holds mu.
func (l *line) evicted(k *carriage) {
	c := k.channel
	if c == nil {
		return
	}
	delete(l.carried, c.name)
	c.line = nil
	if l.bell.ctx.Err() == nil {
		l.bell.work.Go(func() { l.bell.move([]*channel{c}) })
	}
}

// check finds out whether a line that is not heard still lives. One that carries
// nothing is given up.
func (l *line) check() {
	b := l.bell
	b.mu.Lock()
	if l.broken {
		b.mu.Unlock()
		return
	}
	b.work.Add(1)
	defer b.work.Done()
	idle := len(l.carried) == 0
	mute := l.pinged && !l.heard.Load()
	l.pinged = !l.heard.Swap(false)
	ping := l.pinged
	b.mu.Unlock()
	switch {
	case idle, mute:
		l.breakDown(errMute)
		return
	case ping:
		if err := l.pubsub.Ping(offline); err != nil {
			l.breakDown(err)
			return
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !l.broken {
		l.health.Reset(checkEvery)
	}
}

// breakDown ends the line. Its channels move; those that were never confirmed
// fail with err. Only the first call does anything.
func (l *line) breakDown(err error) {
	b := l.bell
	b.mu.Lock()
	if l.broken {
		b.mu.Unlock()
		return
	}
	l.broken = true
	delete(b.lines, l.node.id)
	var lost, hopeless []*channel
	for _, k := range l.carried {
		switch c := k.channel; {
		case c == nil:
		case c.confirmed:
			c.line = nil
			lost = append(lost, c)
		default:
			hopeless = append(hopeless, c)
		}
	}
	if len(lost) > 0 && b.ctx.Err() == nil {
		b.work.Go(func() { b.move(lost) })
	}
	l.health.Stop()
	b.mu.Unlock()

	err = classify(err)
	for _, c := range hopeless {
		b.fail(c, err)
	}
	_ = l.pubsub.Close()
	l.begin()
	if len(lost)+len(hopeless) > 0 && b.ctx.Err() == nil {
		b.store.doubtTopology(err)
	}
}
