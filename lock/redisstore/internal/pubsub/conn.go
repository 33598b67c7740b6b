package pubsub

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// checkEvery is the interval of health checks. A conn that has received nothing since the last one is
// pinged, and closed if it has not at the next one.
const checkEvery = 3 * time.Second

// attachWithin is the least time for subscribing to a channel, which includes connecting
// for the first one. It holds even if the caller's deadline is earlier.
const attachWithin = 2 * time.Second

// errUnresponsive breaks a conn whose ping goes unanswered.
var errUnresponsive = errors.New("redisstore: the subscription connection does not respond")

// errMoved is the error of channels that have another node by now.
var errMoved = errors.New("redisstore: another server has the channel")

// errUnwanted breaks a conn with a subscription that no request is for.
var errUnwanted = errors.New("redisstore: the server confirms a subscription that is not wanted")

// errBroken is the error of adding a channel to a conn that is broken already. There is
// another conn for it.
var errBroken = errors.New("redisstore: the subscription connection is closed")

// conn is one subscription connection to one node. See the ground rules of Subscriber.
type conn struct {
	subscriber *Subscriber
	node       Node
	pubsub     *redis.PubSub

	// order has room for one goroutine, which sends on pubsub; see ground rule 3.
	order   chan struct{}
	sharded bool         // the kind of all its subscriptions; constant after the first request
	silent  atomic.Int32 // how many checks there were since something was received
	locked  atomic.Bool  // pubsub has closed its connection and can no longer be used, see receive

	// Guarded by subscriber.mu.
	channels map[string]*channelState // by channel name
	requests []*request               // those that the server has not answered in full, in its order
	begun    bool                     // a first request was sent, and the conn is read; also constant for the sender
	broken   bool
	health   *time.Timer
}

// channelState is the state of one channel name on a conn.
type channelState struct {
	// channel receives the messages; nil once it has no listener.
	channel *channel
	// last is the latest request; nil once it is answered. Its answer decides, and that of an
	// earlier one has no effect.
	last *request
}

// request is one that was sent, or is about to be.
type request struct {
	kind  kind
	names []string // of channels, without a confirmation yet
}

type kind int

const (
	subscribe kind = iota
	unsubscribe
	ping
)

func newConn(s *Subscriber, n Node) *conn {
	cn := &conn{
		subscriber: s,
		node:       n,
		pubsub:     n.Client.Subscribe(s.ctx), // without channels nothing is sent yet
		order:      make(chan struct{}, 1),
		channels:   make(map[string]*channelState),
	}
	cn.health = time.AfterFunc(s.CheckEvery, cn.check)
	return cn
}

// add subscribes to channels at the server in one request, but to none that has lost its
// listeners meanwhile. It may have waited for the connection to be made.
func (cn *conn) add(ctx context.Context, channels []*channel) error {
	select {
	case cn.order <- struct{}{}:
	case <-ctx.Done():
		return fault.Classify(ctx.Err())
	}
	defer cn.sent()
	registered, err := cn.register(channels)
	if len(registered) == 0 {
		return err
	}
	returned := false
	defer func() {
		if !returned { // the goroutine ends
			cn.breakDown(fault.ErrPanicked)
		}
	}()
	err = fault.Protect(func() error { return cn.subscribe(ctx, registered) })
	returned = true
	if err != nil {
		cn.breakDown(err)
		return fault.Classify(err)
	}
	cn.begin()
	return nil
}

// begin begins to read after the first request, unless the conn is broken.
func (cn *conn) begin() {
	s := cn.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	if !cn.begun && !cn.broken {
		cn.begun = true
		s.work.Go(cn.read)
	}
}

// register notes that the conn carries channels, and returns them. It fails if the conn is
// broken. It leaves out a channel without listeners: when the last one left, the channel was
// on no conn from which it could be removed.
func (cn *conn) register(channels []*channel) (registered []*channel, err error) {
	cn.subscriber.mu.Lock()
	defer cn.subscriber.mu.Unlock()
	r := &request{kind: subscribe}
	for _, c := range channels {
		switch {
		case !cn.subscriber.wants(c):
			continue
		case cn.broken:
			return nil, errBroken
		}
		cn.channels[c.Name] = &channelState{c, r}
		c.conn = cn
		registered = append(registered, c)
	}
	if len(registered) > 0 {
		r.names = namesOf(registered)
		cn.requests = append(cn.requests, r)
	}
	return registered, nil
}

func namesOf(channels []*channel) []string {
	names := make([]string, len(channels))
	for i, c := range channels {
		names[i] = c.Name
	}
	return names
}

// answered notes that the server has confirmed a channel, or has answered a ping. It returns the
// request; nil without one: then it was the server's own decision. The caller holds mu.
func (cn *conn) answered(k kind, name string) *request {
	i := slices.IndexFunc(cn.requests, func(r *request) bool { return r.kind == k && (k == ping || slices.Contains(r.names, name)) })
	if i < 0 {
		return nil
	}
	r := cn.requests[i]
	r.names = slices.DeleteFunc(r.names, func(n string) bool { return n == name })
	switch {
	case len(r.names) > 0:
	case i == 0: // nearly always: there may be many behind it
		cn.requests = cn.requests[1:]
	default: // the server has dropped a channel that was about to be left
		cn.requests = slices.Delete(cn.requests, i, i+1)
	}
	return r
}

// refused ends the subscriptions of the oldest request, which the user has no right to, or whose
// slot belongs to another node. The others on the conn are not affected. A ping is answered by its
// refusal. It reports whether the refusal is explained.
func (cn *conn) refused(err error) bool {
	s := cn.subscriber
	redirected := errors.Is(err, fault.ErrCluster)
	if redirected {
		s.doubt(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cn.broken || len(cn.requests) == 0 || cn.requests[0].kind == unsubscribe && !redirected {
		return redirected // without a request: of a channel to be left, which the server has dropped with its slot
	}
	r := cn.requests[0]
	cn.requests = cn.requests[1:]
	for _, name := range r.names {
		if k := cn.channels[name]; k != nil && k.last == r {
			cn.drop(name, err)
		}
	}
	return true
}

// drop forgets a channel that the server does not subscribe to. The caller holds mu.
func (cn *conn) drop(name string, err error) {
	c := cn.channels[name].channel
	delete(cn.channels, name)
	if c != nil {
		cn.subscriber.loseNow(cn, err, c)
	}
}

// remove unsubscribes from c, which has no listener any more. It may have waited for the
// connection to be made.
func (cn *conn) remove(c *channel) {
	cn.order <- struct{}{}
	defer cn.sent()
	cn.subscriber.mu.Lock()
	k := cn.channels[c.Name]
	if cn.broken || k == nil || k.channel != c {
		cn.subscriber.mu.Unlock()
		return
	}
	r := &request{unsubscribe, []string{c.Name}}
	*k = channelState{nil, r}
	cn.requests = append(cn.requests, r)
	cn.subscriber.mu.Unlock()
	ctx, cancel := context.WithTimeout(Offline, checkEvery)
	defer cancel()
	if err := fault.Protect(func() error { return cn.unsubscribe(ctx, c.Name) }); err != nil {
		cn.breakDown(err)
	}
}

// subscribe subscribes to the channels. The first request makes the connection. The node is asked
// for its kinds of pub/sub then: it may have been upgraded since there was one.
func (cn *conn) subscribe(ctx context.Context, channels []*channel) (err error) {
	if cn.begun {
		by, _ := ctx.Deadline()
		established, cancel := context.WithDeadline(Offline, by)
		defer cancel()
		ctx = established
	} else if cn.node.Sharded {
		if cn.sharded, err = HasShards(ctx, cn.node.Client); err != nil {
			return err
		}
	}
	names := namesOf(channels)
	if cn.sharded {
		return cn.pubsub.SSubscribe(ctx, names...)
	}
	return cn.pubsub.Subscribe(ctx, names...)
}

func (cn *conn) unsubscribe(ctx context.Context, name string) error {
	if cn.sharded {
		return cn.pubsub.SUnsubscribe(ctx, name)
	}
	return cn.pubsub.Unsubscribe(ctx, name)
}

// Offline is the context of all calls on an established connection. It has ended, so
// go-redis cannot silently reconnect when the connection fails: the subscriber has to
// notice the failure. go-redis bounds reads and writes by a deadline alone, which those of a
// context derived from it have.
var Offline = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// read receives until the conn breaks.
func (cn *conn) read() {
	for {
		message, err := cn.receive()
		cn.silent.Store(0)
		if _, refusal := errors.AsType[redis.Error](err); refusal && cn.refused(fault.Classify(err)) {
			continue
		}
		if err != nil {
			cn.breakDown(err)
			return
		}
		switch m := message.(type) {
		case *redis.Pong:
			cn.subscriber.mu.Lock()
			cn.answered(ping, "")
			cn.subscriber.mu.Unlock()
		case *redis.Message:
			cn.message(m)
		case *redis.Subscription:
			if !cn.confirm(m) {
				cn.breakDown(errUnwanted)
				return
			}
		}
	}
}

// receive receives one message. Before go-redis returns that the connection has failed, it tries to
// connect anew, in vain. A hook of the client that panics then leaves a mutex of go-redis locked,
// after the connection was closed.
func (cn *conn) receive() (message any, err error) {
	err = fault.Protect(func() (err error) {
		returned := false
		defer func() {
			if !returned {
				cn.locked.Store(true)
				cn.breakDown(fault.ErrPanicked) // also if this goroutine ends
			}
		}()
		message, err = cn.pubsub.Receive(Offline)
		returned = true
		return err
	})
	return message, err
}

func (cn *conn) message(m *redis.Message) {
	cn.subscriber.mu.Lock()
	defer cn.subscriber.mu.Unlock()
	if k := cn.channels[m.Channel]; k != nil && k.channel != nil {
		k.channel.deliver(m.Payload)
	}
}

// confirm handles the server's confirmation that a subscription began or ended. It reports false
// for one that began without a request.
func (cn *conn) confirm(m *redis.Subscription) bool {
	s := cn.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	of := subscribe
	if strings.HasSuffix(m.Kind, "unsubscribe") {
		of = unsubscribe
	}
	r := cn.answered(of, m.Channel)
	k := cn.channels[m.Channel]
	switch {
	case k == nil:
		return of == unsubscribe
	case k.last == nil && of == unsubscribe: // the slot belongs to another node now
		cn.drop(m.Channel, nil)
		return true
	case k.last != r || r == nil:
		return true
	}
	k.last = nil
	c := k.channel
	switch {
	case c == nil, c.err != nil: // no listener, or it failed already, as when the conn breaks now
		delete(cn.channels, m.Channel)
		return true
	case c.confirmed:
		for l := range c.listeners { // a message may have been missed
			l.notify(driver.Notice{})
		}
	default:
		c.confirmed = true
		close(c.ready)
	}
	c.losses = 0
	return true
}

// check closes a conn without channels, and breaks one that does not respond, or whose channels have all
// moved.
func (cn *conn) check() {
	s := cn.subscriber
	s.mu.Lock()
	if cn.broken {
		s.mu.Unlock()
		return
	}
	s.work.Add(1)
	defer s.work.Done()
	if len(cn.channels) == 0 {
		cn.retire() // before a channel can be added
		s.mu.Unlock()
		cn.close()
		return
	}
	begun := cn.begun
	s.mu.Unlock()
	if begun { // otherwise the first request has its own time to connect
		if err := cn.examine(); err != nil {
			cn.breakDown(err)
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !cn.broken {
		cn.health.Reset(s.CheckEvery)
	}
}

// examine pings a conn that has received nothing since the last check, and moves channels. It returns why
// the conn is to break.
func (cn *conn) examine() error {
	switch silent := cn.silent.Add(1); {
	case silent > 2:
		return errUnresponsive
	case silent == 2:
		if err := cn.ping(); err != nil {
			return err
		}
	}
	return cn.relocate()
}

// relocate moves the channels that have another node by now, as after a failover. A former master
// passes messages on, but the scripts of the present one would take the waiters for dead. It returns
// an error if those are all channels. Those of a sole node are not listed: 100,000 took 45 ms.
func (cn *conn) relocate() error {
	s := cn.subscriber
	if cn.node.Sole {
		if n, err := s.node(Offline, Channel{}); err == nil && n.ID != cn.node.ID {
			return errMoved
		}
		return nil
	}
	s.mu.Lock()
	moved := cn.carried()
	s.mu.Unlock()
	all := len(moved)
	moved = slices.DeleteFunc(moved, func(c *channel) bool {
		n, err := s.node(Offline, c.Channel)
		return err != nil || n.ID == cn.node.ID
	})
	if len(moved) > 0 && len(moved) == all {
		return errMoved
	}
	slices.SortFunc(moved, func(a, b *channel) int { return cmp.Compare(b.number, a.number) }) // as in Close
	for _, c := range moved {
		cn.remove(c)
		s.lose(cn, fault.Classify(errMoved), c)
	}
	return nil
}

// carried returns the conn's channels with listeners. The caller holds mu.
func (cn *conn) carried() []*channel {
	carried := make([]*channel, 0, len(cn.channels))
	for _, k := range cn.channels {
		if k.channel != nil {
			carried = append(carried, k.channel)
		}
	}
	return carried
}

// ping sends a ping, unless something else is being sent.
func (cn *conn) ping() error {
	select {
	case cn.order <- struct{}{}:
		defer cn.sent()
		cn.subscriber.mu.Lock()
		cn.requests = append(cn.requests, &request{kind: ping})
		cn.subscriber.mu.Unlock()
		return fault.Protect(func() error { return cn.pubsub.Ping(Offline) })
	default:
		return nil
	}
}

// breakDown ends the conn, and loses its channels. Only the first call has an effect.
func (cn *conn) breakDown(err error) {
	s := cn.subscriber
	s.mu.Lock()
	if cn.broken {
		s.mu.Unlock()
		return
	}
	cn.retire()
	err = fault.Classify(err)
	carried := cn.carried()
	s.loseNow(cn, err, carried...)
	s.mu.Unlock()
	cn.close()
	if len(carried) > 0 && s.ctx.Err() == nil {
		s.doubt(err)
	}
}

// retire ends the use of an unbroken conn. The caller holds subscriber.mu, and closes the
// conn afterwards.
func (cn *conn) retire() {
	cn.broken = true
	delete(cn.subscriber.conns, cn.node.ID)
	cn.health.Stop()
}

// close ends the connection, and with it the reader. If something is being sent, which may
// take as long as to connect, the sender does so afterwards.
func (cn *conn) close() {
	select {
	case cn.order <- struct{}{}:
		cn.sent()
	default:
	}
}

// sent ends the use of order, and closes the connection of a conn that is broken.
func (cn *conn) sent() {
	<-cn.order
	cn.subscriber.mu.Lock()
	broken := cn.broken
	cn.subscriber.mu.Unlock()
	if broken && !cn.locked.Load() {
		_ = cn.pubsub.Close() // it may be closed already
	}
}
