package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/pubsub"
)

// PubSub is how releases are published in a Redis cluster, and how waiters subscribe to
// them. A cluster has two kinds of pub/sub, and a subscriber receives only the kind to
// which it has subscribed. Redisson's option shardedSubscriptionMode, since 3.29, chooses
// one of them.
type PubSub uint8

const (
	// PubSubAuto uses sharded pub/sub where the servers have it (Redis 7), as Redisson's
	// AUTO does. It also publishes a release without shards if that has subscribers: while a
	// cluster is upgraded from Redis 6.2, and after that, clients that subscribed before are
	// woken. It is the default.
	PubSubAuto PubSub = iota
	// PubSubOn uses only sharded pub/sub. A cluster of which no master has it is an error.
	PubSubOn
	// PubSubOff uses the pub/sub without shards, for fleets with Redisson before 3.22, or
	// with shardedSubscriptionMode=OFF.
	PubSubOff
	// PubSubBoth publishes and subscribes to both, for fleets whose clients differ. Each
	// client then takes two connections to a node, and Info.WaiterCount may count a
	// client twice.
	PubSubBoth
)

var pubSubs = []string{"auto", "on", "off", "both"}

func (p PubSub) String() string {
	if int(p) < len(pubSubs) {
		return pubSubs[p]
	}
	return "unknown"
}

// ParsePubSub returns the mode of this name, as String returns it.
func ParsePubSub(name string) (PubSub, error) {
	if i := slices.Index(pubSubs, name); i >= 0 {
		return PubSub(i), nil
	}
	return 0, fmt.Errorf("redisstore: unknown PubSub %q; accepted are %s", name, strings.Join(pubSubs, ", "))
}

// The publish modes of scripts, see publish.lua.
const (
	publishPlain   = "publish"
	publishSharded = "spublish"
	publishAuto    = "auto"
	publishBoth    = "both"
)

// errNoShards is the error of PubSubOn with servers that are too old.
var errNoShards = errors.New("redisstore: the cluster has no sharded pub/sub, which Config.PubSub = PubSubOn needs: it requires Redis 7; set PubSubAuto or PubSubOff")

// publish returns how releases are published; clustered: by a cluster, as far as pub/sub goes.
func (p PubSub) publish(clustered bool) string {
	switch {
	case !clustered || p == PubSubOff:
		return publishPlain
	case p == PubSubBoth:
		return publishBoth
	case p == PubSubOn:
		return publishSharded
	}
	return publishAuto
}

// handler is a channel of a waiter, and the parser of its messages.
type handler struct {
	channel key
	// parse returns the notice for a message; ok is false if there is none.
	parse func(payload string) (n driver.Notice, ok bool)
}

// askAgain parses any message as a notice to send the acquire request again.
func askAgain(string) (driver.Notice, bool) { return driver.Notice{}, true }

// Subscribe calls notify for every message on the lock's channels.
func (s *Store) Subscribe(ctx context.Context, h *driver.Hold, notify func(driver.Notice)) (driver.Subscription, error) {
	r, k, err := s.request(ctx, h.Kind, h.Name)
	if err != nil {
		return nil, err
	}
	r.Hold = h
	return s.subscribe(ctx, r.publish, k.handlers(r), notify)
}

// subscribe subscribes to channels of the kind, or kinds, of pub/sub on which they are
// published, see publishing.
func (s *Store) subscribe(ctx context.Context, publish string, handlers []handler, notify func(driver.Notice)) (driver.Subscription, error) {
	var all []pubsub.Handler
	for _, h := range handlers {
		one := pubsub.Handler{Channel: pubsub.Channel{Name: string(h.channel), Sharded: publish != publishPlain}, Parse: h.parse}
		all = append(all, one)
		if publish == publishBoth && !strings.HasPrefix(string(h.channel), "leasewheel") { // Redisson publishes there
			one.Channel.Sharded = false
			all = append(all, one)
		}
	}
	return s.subscriber.Subscribe(ctx, all, notify)
}

// node returns the node of a channel's subscription: the server of the lock, whose scripts count the
// subscribers. Outside of a Redis cluster another one may be at its address in another epoch.
func (s *Store) node(ctx context.Context, channel pubsub.Channel) (pubsub.Node, error) {
	n := pubsub.Node{Sole: true, Client: s.client}
	if s.cluster != nil {
		master, err := s.transport.Master(ctx, channel.Name)
		if err != nil {
			return pubsub.Node{}, err
		}
		n = pubsub.Node{ID: master.Options().Addr, Sharded: channel.Sharded, Client: master}
		if !n.Sharded { // a connection of its own: a channel of either kind may have the name
			n.ID += " " + publishPlain
		}
	}
	if !s.clustered {
		n.ID += " " + strconv.FormatInt(s.transport.Epoch(), 10)
	}
	return n, nil
}
