package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// script is a Lua script. One that does not include deadline.lua must be harmless when its
// request arrives late.
type script struct {
	text func() *lua.Text
	// granting is set if the script grants locks. A reply that begins with 1 is a grant. Each
	// run that grants has written, a repeated one too: since Redis 7.2, WAIT covers only
	// what its connection wrote, see runReplicated.
	granting bool
	sharing  sharing // zero if a run is for one request
}

// newScript returns the script in a file, one without traits.
func newScript(file string) *script { return &script{text: lua.File(file)} }

var (
	readClock = newScript("read_clock.lua")
	announce  = newScript("announce.lua")
)

// once is a command that go-redis sends at most once. A retry of go-redis cannot be
// distinguished from a first attempt: a release whose reply was lost would return as the
// release of a lock that is not held. Redirects are still followed, since a redirected
// command was not run.
type once struct{ *redis.Cmd }

// NoRetry is called by go-redis: it disables the retries of the client.
func (once) NoRetry() bool { return true }

// call is one run of a script.
type call struct {
	script *script
	keys   []any // strings, or pointers to such
	args   []any
	simple bool // the call may be part of a shared run, see sharing
}

// newCall returns the call of a script.
func newCall(sc *script, keys []key, args ...any) *call {
	c := &call{script: sc, keys: make([]any, len(keys)), args: args}
	for i := range keys {
		c.keys[i] = (*string)(&keys[i])
	}
	return c
}

// key returns the first key of the call, whose node runs it.
func (c *call) key() key {
	switch first := c.keys[0].(type) {
	case string:
		return key(first)
	case *string:
		return key(*first)
	}
	return ""
}

// command returns a call as a command: by the script's SHA-1, or with its source for a
// server that has not cached it.
func (c *call) command(ctx context.Context, d deadline, bySource bool) once {
	text := c.script.text()
	argv := make([]any, 0, 5+len(c.keys)+len(c.args))
	if bySource {
		argv = append(argv, "eval", &text.Source)
	} else {
		argv = append(argv, "evalsha", &text.SHA)
	}
	argv = append(argv, len(c.keys))
	argv = append(argv, c.keys...)
	argv = append(argv, c.args...)
	if text.Timely {
		argv = append(argv, d.by, d.most)
	}
	cmd := redis.NewCmd(ctx, argv...)
	cmd.SetFirstKeyPos(3)
	// Without a step, a cluster client asks random nodes for COMMAND, one after the other and
	// all requests waiting. A script has one node, so its step has no meaning.
	cmd.SetStepCount(1)
	return once{cmd}
}

// run runs a script on the server that has the keys.
func (s *Store) run(ctx context.Context, sc *script, keys []key, args ...any) (any, error) {
	return s.transport.Run(ctx, newCall(sc, keys, args...))
}
