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
	// timely: the script takes the deadline of its request as its last arguments, see
	// deadline.lua.
	timely bool
	// granting is set if the script grants locks. A reply that begins with 1 is a grant. Each
	// run that grants has written, a repeated one too: since Redis 7.2, WAIT covers only
	// what its connection wrote, see runReplicated.
	granting bool
	sharing  sharing // zero if a run is for one request
}

// newScript makes a script from sources, with the functions of each visible in the later
// ones. The script must be harmless when its request arrives late.
func newScript(sources ...string) *script { return assemble("", sources...) }

// newTimelyScript makes a script that changes nothing when its request arrives after
// the deadline of its context.
func newTimelyScript(sources ...string) *script {
	s := assemble(deadlineSource, sources...)
	s.timely = true
	return s
}

// assemble makes a script from sources. The clock's functions are visible in all of them,
// but not in first, which runs before they are made.
func assemble(first string, sources ...string) *script {
	source := "local instant -- see clock.lua\n" + first + "\n" + clockSource + "\n" + strings.Join(sources, "\n")
	sum := sha1.Sum([]byte(source)) //nolint:gosec // Redis names scripts by their SHA-1
	return &script{source: source, sha: hex.EncodeToString(sum[:])}
}

// newShortcutScript makes a script that begins with a short path: it comes before the
// functions of the sources are made, and returns in the common case. Requests can share it.
func newShortcutScript(how sharing, shortcut string, sources ...string) *script {
	s := assemble(sharedSource+"\n"+shortcut, sources...)
	s.sharing = how
	return s
}

// newGrantingShortcut makes a timely one that grants locks.
func newGrantingShortcut(how sharing, shortcut string, sources ...string) *script {
	s := newShortcutScript(how, deadlineSource+"\n"+shortcut, sources...)
	s.timely, s.granting = true, true
	return s
}

// newGrantingScript makes a timely script that grants locks.
func newGrantingScript(sources ...string) *script {
	s := newTimelyScript(sources...)
	s.granting = true
	return s
}

var (
	//go:embed clock.lua
	clockSource string
	//go:embed shared.lua
	sharedSource string
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
	//go:embed announce.lua
	announceSource string

	readClock = newScript(clockReadingSource)
	announce  = newScript(announceSource)
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
	// Without a step, a cluster client asks random nodes for COMMAND, one after the other and
	// all requests waiting. A script has one node, so its step has no meaning.
	cmd.SetStepCount(1)
	return once{cmd}
}

// unknown reports whether the server has no such script in its cache. SCRIPT FLUSH, a
// restart or a failover may empty the cache at any time.
func unknown(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// run runs a script on the server that has the keys. Under load it is batched with other
// requests of this process.
func (s *Store) run(ctx context.Context, sc *script, keys []key, args ...any) (any, error) {
	return s.do(ctx, newCall(sc, keys, args...))
}

// do makes a call on the server that has its keys.
func (s *Store) do(ctx context.Context, c *call) (any, error) {
	if err := s.locate(ctx); err != nil {
		return nil, err
	}
	if s.config.Replicas > 0 && c.script.granting {
		return s.runReplicated(ctx, c)
	}
	return s.batcher(c.key()).run(ctx, c)
}
