package redisstore

import (
	"context"
	"io/fs"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// The functions below are for other structures on the same server, such as delay queues.
// They share the store's connections, its subscriber and its errors.

// Script is a Lua script.
type Script struct{ script *transport.Script }

// NewScript makes the script in a file of dir. A line "-- include: other.lua" stands for the
// text of that file, at its first place. All files see the functions decimal, integer and
// micros. A request that reaches the server after its context's deadline, or after ten seconds
// without one, changes nothing. A file that does not exist is a panic of the first run.
func NewScript(dir fs.FS, name string) Script {
	return Script{&transport.Script{Text: lua.Timely(dir, name)}}
}

// Commands returns the commands that the script may run. In a cluster it may publish by
// spublish, too.
func (sc Script) Commands() []string { return sc.script.Text().Commands() }

// Run runs a script on the server that has the keys, and does not repeat it. The keys are no
// names of locks: [Config.Prefix] does not apply to them. A server that does not know the
// script gets its source. Errors are of type *[ServerError].
func (s *Store) Run(ctx context.Context, sc Script, keys []string, args ...any) (any, error) {
	return s.transport.Run(ctx, newCall(sc.script, keysOf(keys), args...))
}

// keysOf returns the keys that a caller names.
func keysOf(texts []string) []key {
	keys := make([]key, len(texts))
	for i, text := range texts {
		keys[i] = key(text)
	}
	return keys
}

// Pipeline is a pipeline or a transaction of go-redis that its user executes.
type Pipeline = redis.Pipeliner

// Queue adds a run of the script to a pipeline of a client of the server that has the
// keys. result returns its reply or error, and neither before the pipeline was executed.
// The script is sent with its source: a transaction cannot be repeated for a server that
// does not know it. The run has no deadline, since the rest of the pipeline has none.
func (sc Script) Queue(ctx context.Context, pipe Pipeline, keys []string, args ...any) (result func() (reply any, err error)) {
	cmd := newCall(sc.script, keysOf(keys), args...).Command(ctx)
	_ = pipe.Process(ctx, cmd)
	return cmd.Result
}

// Listen calls wake for every message on a channel, and after every gap in which a
// message may have been missed. In a cluster the channel is on the node that has the key
// of that text. Listen returns once the server has confirmed the subscription. wake must
// not block.
func (s *Store) Listen(ctx context.Context, channel string, wake func()) (driver.Subscription, error) {
	publish, err := s.publishing(ctx)
	if err != nil {
		return nil, err
	}
	return s.subscribe(ctx, publish, []handler{{key(channel), askAgain}}, func(driver.Notice) { wake() })
}

// PublishCommand returns the command with which scripts publish to [Store.Listen]:
// "publish", or "spublish" in a cluster, whose servers may not have that: those before Redis 7.
func (s *Store) PublishCommand(ctx context.Context) (string, error) {
	publish, err := s.publishing(ctx)
	if err == nil && publish != publishPlain {
		publish = publishSharded
	}
	return publish, err
}

// NodeOf returns the address of the cluster's node that has a key. It returns "" outside a
// cluster, and for a node that is not known.
func (s *Store) NodeOf(text string) string { return s.transport.NodeOf(text) }

// Database returns the number of the store's database. Package quorum refuses nodes whose
// numbers differ.
func (s *Store) Database() int {
	if c, ok := s.client.(*redis.Client); ok {
		return c.Options().DB
	}
	return 0 // a cluster has no other
}
