package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leasewheel/leasewheel/lock"
)

// PubSub is how releases are published in a Redis cluster, and how waiters listen for
// them. A cluster has two kinds of pub/sub, and a subscriber receives only the kind that
// it has subscribed to. Redisson's option shardedSubscriptionMode, since 3.29, chooses
// one of them.
type PubSub uint8

const (
	// PubSubAuto listens to sharded pub/sub where the servers have it (Redis 7), as
	// Redisson's AUTO does, and publishes there. A release is published without shards as
	// well if somebody listens for that. It is the default.
	PubSubAuto PubSub = iota
	// PubSubOn uses sharded pub/sub alone. A cluster without it is an error.
	PubSubOn
	// PubSubOff uses the pub/sub without shards, for fleets with Redisson before 3.22, or
	// with shardedSubscriptionMode=OFF.
	PubSubOff
	// PubSubBoth publishes both, and listens to both: for fleets whose clients differ.
	// Each client takes two connections to a node then, and Info.WaiterCount may count
	// a client both.
	PubSubBoth
)

var pubSubs = []string{"auto", "on", "off", "both"}

func (p PubSub) String() string {
	if int(p) < len(pubSubs) {
		return pubSubs[p]
	}
	return "unknown"
}

// ParsePubSub returns the mode with this name, as String gives it.
func ParsePubSub(name string) (PubSub, error) {
	for i, known := range pubSubs {
		if known == name {
			return PubSub(i), nil
		}
	}
	return 0, fmt.Errorf("redisstore: there is no PubSub %q; accepted are %s", name, strings.Join(pubSubs, ", "))
}

// The ways of publishing that scripts know, see publish.lua.
const (
	publishPlain   = "publish"
	publishSharded = "spublish"
	publishAuto    = "auto"
	publishBoth    = "both"
)

// errNoShards is the error of PubSubOn where servers are too old.
var errNoShards = errors.New("redisstore: the cluster has no sharded pub/sub, which Config.PubSub = PubSubOn asks for: it takes Redis 7; set PubSubAuto or PubSubOff")

// publishing returns how to publish in a cluster that is able to do so by this command.
func (p PubSub) publishing(able string) (string, error) {
	switch {
	case able == publishPlain && p == PubSubOn:
		return "", fmt.Errorf("%w: %w", errNoShards, lock.ErrNotDone)
	case able == publishPlain || p == PubSubOff:
		return publishPlain, nil
	case p == PubSubBoth:
		return publishBoth, nil
	case p == PubSubOn:
		return publishSharded, nil
	}
	return publishAuto, nil
}

// channelID is a channel of one kind of pub/sub.
type channelID struct {
	name    string
	sharded bool
}

// channels returns which channels of a name a waiter has to listen to.
func (s *Store) channels(ctx context.Context, name string) ([]channelID, error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return nil, err
	}
	switch {
	case publish == publishPlain:
		return []channelID{{name: name}}, nil
	case publish == publishBoth && !strings.HasPrefix(name, "leasewheel"): // others publish there
		return []channelID{{name, true}, {name, false}}, nil
	}
	return []channelID{{name, true}}, nil
}
