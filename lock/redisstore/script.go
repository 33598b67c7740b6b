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
	// many says that the script serves any number of calls: it takes the first key of
	// each, then the second of each, and so on; what is common to them; and the
	// arguments of one call after the other. It returns a list of their replies.
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

// call is one run of a script, for one lock or, if the script serves many, as one of
// many.
type call struct {
	script *script
	keys   []any // strings, or pointers to such
	common []any // the same in all calls of a store for that script
	args   []any
}

// newCall returns the call of a script that serves one.
func newCall(sc *script, keys []string, args ...any) call {
	c := call{script: sc, keys: make([]any, len(keys)), args: args}
	for i := range keys {
		c.keys[i] = &keys[i]
	}
	return c
}

// command returns calls of one script as a command: by the script's name, or with its
// source for a server that does not know the name. They are several only if the script
// serves many.
func command(ctx context.Context, calls []*call, bySource bool) once {
	first := calls[0]
	keys := len(calls) * len(first.keys)
	argv := make([]any, 0, 3+keys+len(first.common)+len(calls)*len(first.args))
	if bySource {
		argv = append(argv, "eval", &first.script.source)
	} else {
		argv = append(argv, "evalsha", &first.script.sha)
	}
	argv = append(argv, keys)
	for k := range first.keys {
		for _, c := range calls {
			argv = append(argv, c.keys[k])
		}
	}
	argv = append(argv, first.common...)
	for _, c := range calls {
		argv = append(argv, c.args...)
	}
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
	return s.do(ctx, keys[0], newCall(sc, keys, args...))
}

// do makes a call, whose first key is given, on the server that has the keys.
func (s *Store) do(ctx context.Context, key string, c call) (any, error) {
	if s.config.Replicas > 0 && granting[c.script] {
		return s.runReplicated(ctx, key, &c)
	}
	return s.convoy(key).run(ctx, c)
}

// runAlone sends one call.
func (s *Store) runAlone(ctx context.Context, c *call) (any, error) {
	cmd := command(ctx, []*call{c}, false)
	err := s.client.Process(ctx, cmd)
	if unknown(err) {
		cmd = command(ctx, []*call{c}, true)
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

// runAll runs calls, each by itself, in one pipeline and returns each one's reply,
// which may be an error.
func (s *Store) runAll(ctx context.Context, calls []call) []any {
	runs := make([][]*call, len(calls))
	for i := range calls {
		runs[i] = []*call{&calls[i]}
	}
	return s.runRuns(ctx, runs)
}

// runRuns does so for runs of scripts, each for several calls. Those whose script the
// server had forgotten go again, in a second pipeline.
func (s *Store) runRuns(ctx context.Context, runs [][]*call) []any {
	cmds := make([]once, len(runs))
	s.pipeline(ctx, runs, cmds, func(int) bool { return true }, false)
	s.pipeline(ctx, runs, cmds, func(i int) bool { return unknown(cmds[i].Err()) }, true)
	replies := make([]any, len(runs))
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

// pipeline sends the runs that pick chooses and keeps their commands in cmds.
func (s *Store) pipeline(ctx context.Context, runs [][]*call, cmds []once, pick func(i int) bool, bySource bool) {
	pipe := s.client.Pipeline()
	for i, run := range runs {
		if pick(i) {
			cmds[i] = command(ctx, run, bySource)
			_ = pipe.Process(ctx, cmds[i])
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
}
