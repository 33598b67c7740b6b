package transport

import (
	"context"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
)

// Script is a Lua script. One that does not include deadline.lua must be harmless when its
// request arrives late.
type Script struct {
	Text func() *lua.Text
	// Granting is set if the script grants locks. A reply that begins with 1 is a grant. Each
	// run that grants has written, a repeated one too: since Redis 7.2, WAIT covers only
	// what its connection wrote, see replicas.go.
	Granting bool
	// Common is how many arguments are the same for all requests of a store, and Own how many
	// a simple request has besides, see share. Own is zero if a run is for one request.
	Common, Own int
}

// File returns the script in a file, one without traits.
func File(name string) *Script { return &Script{Text: lua.File(name)} }

// once is a command that go-redis sends at most once. A retry of go-redis cannot be
// distinguished from a first attempt: a release whose reply was lost would return as the
// release of a lock that is not held. Redirects are still followed, since a redirected
// command was not run.
type once struct {
	redis.Cmd
	answered bool // the reply was read
}

// NoRetry is called by go-redis: it disables the retries of the client.
func (*once) NoRetry() bool { return true }

// SetErr is called by go-redis with nil once the reply was read. A cluster client calls it again, for
// all commands of a pipeline, if its context ends before the redirect of one of them is followed.
// Those that have a reply keep it.
func (o *once) SetErr(err error) {
	if !o.answered {
		o.answered = err == nil
		o.Cmd.SetErr(err)
	}
}

// leftBy sets the error of a pipeline that has left the command without a reply and without an
// error, as go-redis does if the server refuses the connection, see docs/upstream.md.
func (o *once) leftBy(err error) {
	if err != nil && !o.answered && o.Cmd.Err() == nil {
		o.Cmd.SetErr(err)
	}
}

// Call is one run of a script, on the node of its first key.
type Call struct {
	Script *Script
	Keys   []any // strings, or pointers to such
	Args   []any
}

// simple reports whether the call may be part of a shared run, see share.
func (c *Call) simple() bool {
	return c.Script.Own > 0 && len(c.Args) == c.Script.Common+c.Script.Own
}

// key returns the first key of the call.
func (c *Call) key() string {
	if first, ok := c.Keys[0].(*string); ok {
		return *first
	}
	return c.Keys[0].(string)
}

// HashTag returns the part of a key that a cluster hashes.
func HashTag(key string) string {
	_, rest, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
		return tag
	}
	return key
}

// command returns a call as a command: by the script's SHA-1, or with its source for a
// server that has not cached it. The deadline, of a script that takes one, may be set later.
func (c *Call) command(ctx context.Context, d *deadline, bySource bool) *once {
	text := c.Script.Text()
	argv := make([]any, 0, 5+len(c.Keys)+len(c.Args))
	if bySource {
		argv = append(argv, "eval", &text.Source)
	} else {
		argv = append(argv, "evalsha", &text.SHA)
	}
	argv = append(argv, len(c.Keys))
	argv = append(argv, c.Keys...)
	argv = append(argv, c.Args...)
	if text.Timely {
		argv = append(argv, &d.by, &d.most)
	}
	cmd := &once{Cmd: *redis.NewCmd(ctx, argv...)}
	cmd.SetFirstKeyPos(3)
	// Without a step, a cluster client asks random nodes for COMMAND, one after the other and
	// all requests waiting. A script has one node, so its step has no meaning.
	cmd.SetStepCount(1)
	return cmd
}

// deadline is the deadline of a request as deadline.lua takes it.
type deadline struct {
	by   string // µs since 1970 by the node's clock
	most string // for how many µs from its sending it may lie ahead, by any clock
}

// endless is the deadline of a request that never arrives late.
var endless = deadline{by: strconv.FormatInt(lua.MaxNumber, 10), most: strconv.FormatInt(lua.MaxNumber, 10)}

// Command returns the call for a pipeline of the caller, with its source and without a
// deadline. go-redis may repeat it as it repeats the rest.
func (c *Call) Command(ctx context.Context) *redis.Cmd { return &c.command(ctx, &endless, true).Cmd }

// tooLate is the reply to a request whose deadline has passed, also to one with a run of its
// own, there in an array. It has done nothing.
const tooLate = "late"

// late reports whether a script did nothing because its deadline had passed.
func late(reply any) bool {
	list, ok := reply.([]any)
	return ok && len(list) == 1 && list[0] == tooLate
}

// notSentError is the reason why a request was not sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error        { return e.error }
func (e notSentError) Is(target error) bool { return target == driver.ErrNotDone }
