package redisstore

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script and the name under which a server caches it.
type script struct {
	source, sha string
	// many says that the script takes the keys and arguments of any number of
	// calls, one after the other, and returns a list of their replies.
	many bool
}

// newScript makes a script of sources, the earlier of which are functions for the
// later ones.
func newScript(sources ...string) *script {
	source := strings.Join(sources, "\n")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by their SHA-1
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// newScriptForMany makes a script that serves many calls at once.
func newScriptForMany(sources ...string) *script {
	s := newScript(sources...)
	s.many = true
	return s
}

var (
	//go:embed token.lua
	tokenSource string
	//go:embed each.lua
	eachSource string
	//go:embed line.lua
	lineSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed release.lua
	releaseSource string
	//go:embed renew.lua
	renewSource string
	//go:embed announce.lua
	announceSource string

	acquire  = newScriptForMany(eachSource, tokenSource, lineSource, acquireSource)
	release  = newScriptForMany(eachSource, tokenSource, lineSource, releaseSource)
	renew    = newScript(renewSource)
	announce = newScript(announceSource)
)

// once is a command that go-redis sends at most once. Its retries cannot be told
// from a first attempt, so a release whose reply was lost would come back as the
// release of a lock that is not held. Redirects, which say that nothing was done,
// are still followed.
type once struct{ *redis.Cmd }

// NoRetry is asked by go-redis.
func (once) NoRetry() bool { return true }

// call is one run of a script.
type call struct {
	script *script
	keys   []string
	args   []any
}

// command returns the call as a command: by the script's name, or with its source
// for a server that does not know the name.
func (c *call) command(ctx context.Context, bySource bool) once {
	argv := make([]any, 0, 3+len(c.keys)+len(c.args))
	if bySource {
		argv = append(argv, "eval", c.script.source)
	} else {
		argv = append(argv, "evalsha", c.script.sha)
	}
	argv = append(argv, len(c.keys))
	for _, key := range c.keys {
		argv = append(argv, key)
	}
	argv = append(argv, c.args...)
	cmd := redis.NewCmd(ctx, argv...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}

// unknown reports whether the server has forgotten the script. It may at any time:
// by SCRIPT FLUSH, a restart or a failover.
func unknown(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// run runs a script on the server that has the keys, together with other requests of
// this process if there are many.
func (s *Store) run(ctx context.Context, sc *script, keys []string, args ...any) (any, error) {
	c := call{sc, keys, args}
	if s.config.Replicas > 0 && granting[sc] {
		return s.runReplicated(ctx, &c)
	}
	return s.convoy(keys[0]).run(ctx, c)
}

// runAlone sends one call.
func (s *Store) runAlone(ctx context.Context, c call) (any, error) {
	cmd := c.command(ctx, false)
	err := s.client.Process(ctx, cmd)
	if unknown(err) {
		cmd = c.command(ctx, true)
		err = s.client.Process(ctx, cmd)
	}
	if err != nil {
		err = classify(err)
		s.doubtTopology(err)
		return nil, err
	}
	return c.replyOf(cmd)
}

// replyOf returns the reply to the only call of a command.
func (c *call) replyOf(cmd once) (any, error) {
	if !c.script.many {
		return cmd.Val(), nil
	}
	replies, ok := cmd.Val().([]any)
	if !ok || len(replies) != 1 {
		return nil, unexpected(cmd.Val())
	}
	if err, failed := replies[0].(error); failed {
		return nil, classify(err)
	}
	return replies[0], nil
}

// runAll runs calls in one pipeline and returns each one's reply, which may be an
// error. Those whose script the server had forgotten go again, in a second one.
func (s *Store) runAll(ctx context.Context, calls []call) []any {
	cmds := make([]once, len(calls))
	s.pipeline(ctx, calls, cmds, func(int) bool { return true }, false)
	s.pipeline(ctx, calls, cmds, func(i int) bool { return unknown(cmds[i].Err()) }, true)
	replies := make([]any, len(calls))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			err = classify(err)
			s.doubtTopology(err)
			replies[i] = err
		} else {
			replies[i] = cmd.Val()
		}
	}
	return replies
}

// pipeline sends the calls that pick chooses and keeps their commands in cmds.
func (s *Store) pipeline(ctx context.Context, calls []call, cmds []once, pick func(i int) bool, bySource bool) {
	pipe := s.client.Pipeline()
	for i := range calls {
		if pick(i) {
			cmds[i] = calls[i].command(ctx, bySource)
			_ = pipe.Process(ctx, cmds[i])
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
}
