package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock"
)

// What other structures on the same server are built with, as delay queues are:
// they share the store's connections, its subscription and its errors.

// Script is a Lua script.
type Script struct{ *script }

// NewScript makes a script of sources, the earlier of which are functions for the
// later ones. They find the functions decimal and micros of clock.lua. A request that
// reaches the server after the deadline of its context, or after ten seconds, changes
// nothing.
func NewScript(sources ...string) Script { return Script{newTimelyScript(sources...)} }

// Run runs a script once on the server that has the keys, and never again by
// itself. A server that does not know the script is given it. Errors are of type
// *[ServerError].
func (s *Store) Run(ctx context.Context, sc Script, keys []string, args ...any) (any, error) {
	return s.run(ctx, sc.script, keys, args...)
}

// Listen has wake called for every message on a channel, which in a cluster is one
// of the node that has the key of that name, and after every gap in which one may
// have been missed. It returns once the server has confirmed it. wake must not
// block.
func (s *Store) Listen(ctx context.Context, name string, wake func()) (lock.Subscription, error) {
	return s.subscriber.subscribe(ctx, []handler{{name, askAgain}}, func(lock.Notice) { wake() })
}

// PublishCommand returns the command with which scripts have to publish what
// [Store.Listen] hears: "publish", or in most clusters "spublish". In a cluster it
// asks a server, once.
func (s *Store) PublishCommand(ctx context.Context) (string, error) {
	publish, err := s.publishing(ctx)
	if err == nil && publish != publishPlain {
		publish = publishSharded
	}
	return publish, err
}

// Database returns the number of the database that the store uses. Package quorum
// refuses nodes whose numbers differ.
func (s *Store) Database() int {
	switch c := s.client.(type) {
	case *redis.Client:
		return c.Options().DB
	case *redis.Ring:
		return c.Options().DB
	}
	return 0 // a cluster has no other
}
