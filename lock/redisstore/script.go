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
	// timely says that the script takes the deadline of its request as its last
	// arguments, see deadline.lua.
	timely bool
}

// newScript makes a script of sources, the earlier of which are functions for the
// later ones. It changes nothing, or nothing that matters when its request arrives
// late.
func newScript(sources ...string) *script {
	source := clockSource + "\n" + strings.Join(sources, "\n")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by their SHA-1
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// newTimelyScript makes a script that changes nothing when its request arrives after
// the deadline of its context.
func newTimelyScript(sources ...string) *script {
	s := newScript(append([]string{deadlineSource}, sources...)...)
	s.timely = true
	return s
}

var (
	//go:embed clock.lua
	clockSource string
	//go:embed deadline.lua
	deadlineSource string
	//go:embed publish.lua
	publishSource string
	//go:embed listeners.lua
	listenersSource string
	//go:embed clockreading.lua
	clockReadingSource string
	//go:embed token.lua
	tokenSource string
	//go:embed owner.lua
	ownerSource string
	//go:embed wait_queue.lua
	waitQueueSource string
	//go:embed mutex_yield.lua
	mutexYieldSource string
	//go:embed acquire.lua
	acquireSource string
	//go:embed acquire_contended.lua
	acquireContendedSource string
	//go:embed release.lua
	releaseSource string
	//go:embed release_contended.lua
	releaseContendedSource string
	//go:embed renew.lua
	renewSource string
	//go:embed announce.lua
	announceSource string

	readClock = newScript(clockReadingSource)
	acquire   = newTimelyScript(tokenSource, acquireSource, ownerSource, publishSource, listenersSource, waitQueueSource, plainYieldSource, mutexYieldSource, acquireContendedSource)
	release   = newScript(publishSource, releaseSource, tokenSource, listenersSource, waitQueueSource, plainYieldSource, mutexYieldSource, releaseContendedSource)
	renew     = newTimelyScript(renewSource)
	announce  = newScript(announceSource)
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
	keys   []any // strings, or pointers to such
	args   []any
}

// newCall returns the call of a script.
func newCall(sc *script, keys []string, args ...any) call {
	c := call{script: sc, keys: make([]any, len(keys)), args: args}
	for i := range keys {
		c.keys[i] = &keys[i]
	}
	return c
}

// key returns the first key of the call, whose node runs it.
func (c *call) key() string {
	switch key := c.keys[0].(type) {
	case string:
		return key
	case *string:
		return *key
	}
	return ""
}

// command returns a call as a command: by the script's name, or with its source for a
// server that does not know the name.
func (c *call) command(ctx context.Context, d deadline, bySource bool) once {
	argv := make([]any, 0, 5+len(c.keys)+len(c.args))
	if bySource {
		argv = append(argv, "eval", &c.script.source)
	} else {
		argv = append(argv, "evalsha", &c.script.sha)
	}
	argv = append(argv, len(c.keys))
	argv = append(argv, c.keys...)
	argv = append(argv, c.args...)
	if c.script.timely {
		argv = append(argv, d.by, d.most)
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
	return s.do(ctx, newCall(sc, keys, args...))
}

// do makes a call on the server that has its keys.
func (s *Store) do(ctx context.Context, c call) (any, error) {
	if s.config.Replicas > 0 && granting[c.script] {
		return s.runReplicated(ctx, &c)
	}
	return s.batcher(c.key()).run(ctx, c)
}
