package transport

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
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

// notSentError is the reason why a request was not sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error        { return e.error }
func (e notSentError) Is(target error) bool { return target == driver.ErrNotDone }

// lateTries is how often a request is sent that arrives late within its context's time:
// the node's clock was set, or another node serves the key now.
const lateTries = 3

// errLate is the error of a request that arrived after its deadline each time.
var errLate = fault.Passing(errors.New("the request arrived after its deadline"), false)

// request is one call, and its reply once it is done.
type request struct {
	ctx context.Context
	*Call
	awaited bool // what it grants waits for replicas

	done  chan struct{} // closed when reply is set; nil if no other goroutine waits
	reply any           // or an error

	members []*request // of a shared run, which has no done; else nil

	// Of the latest attempt:

	node *node // nil if it is not known yet, or any more
	cmd  *once
	by   deadline // zero if the script needs none

	reading *Reading // by which the deadline was computed
	stale   bool     // the reading is to be renewed

	wait *redis.IntCmd // behind a grant that waits for replicas; else nil
}

// prepare makes the command of the next attempt, with the deadline of the request's context by
// the node's clock, rounded up.
func (t *Transport) prepare(r *request) (err error) {
	r.cmd = r.command(r.ctx, &r.by, false)
	if !r.Script.Text().Timely {
		return nil
	}
	if r.node == nil {
		if r.node, err = t.node(r.ctx, r.Call); err != nil {
			return err
		}
	}
	if r.reading = r.node.clock.reading.Load(); r.reading == nil || time.Since(r.reading.Sent) >= readingLife {
		if r.reading, err = r.node.clock.query(r.ctx, &t.nodes, r.key()); err != nil {
			return err
		}
	}
	now := time.Now()
	by, bounded := r.ctx.Deadline()
	if !bounded {
		by = now.Add(t.Unbounded)
	}
	r.stale = now.Sub(r.reading.Sent) >= freshReading && !r.awaited // a reading must not wait for replicas
	r.by.by = strconv.FormatInt(min(r.reading.At.Add(by.Sub(r.reading.Sent)).UnixMicro()+1, lua.MaxNumber), 10)
	r.by.most = strconv.FormatInt(min(readingError.Microseconds()+max(by.Sub(now), 0).Microseconds()+1, lua.MaxNumber), 10)
	return nil
}

// runOne sends one request without others, and repeats that if it was late.
func (t *Transport) runOne(r *request) (any, error) {
	for range lateTries {
		if err := t.prepare(r); err != nil {
			return nil, err
		}
		if r.stale || r.awaited {
			t.exec(r.ctx, []*request{r})
		} else if err := t.client.Process(r.ctx, r.cmd); err != nil && fault.NoScript(err) {
			r.cmd = r.command(r.ctx, &r.by, true)
			_ = t.client.Process(r.ctx, r.cmd) // the command has its error
		}
		reply, tardy, err := t.result(r)
		if !tardy {
			return reply, err
		}
		if r.ctx.Err() != nil {
			break
		}
	}
	return nil, errLate
}

// exec sends the requests in one pipeline, and sets their commands. Those whose script the
// server did not know are repeated in a second pipeline. All of them, or none, wait for replicas.
func (t *Transport) exec(ctx context.Context, requests []*request) {
	if len(requests) == 0 {
		return
	}
	pipe, err := t.pipeline(ctx, requests[0])
	if err != nil {
		for _, r := range requests {
			r.cmd.SetErr(err)
		}
		return
	}
	for _, r := range requests {
		_ = pipe.Process(ctx, r.cmd)
	}
	old, asked := slices.IndexFunc(requests, func(r *request) bool { return r.stale }), time.Now()
	var clock *once
	if old >= 0 {
		clock = newClockCall(requests[old].key()).command(ctx, nil, true)
		_ = pipe.Process(ctx, clock)
	}
	t.execute(ctx, pipe, requests)
	if old >= 0 && clock.Err() == nil {
		requests[old].node.clock.renew(requests[old].reading, asked, clock.Val())
	}
	var again []*request
	for _, r := range requests {
		if fault.NoScript(r.cmd.Err()) {
			r.cmd = r.command(ctx, &r.by, true)
			_ = pipe.Process(ctx, r.cmd)
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		t.execute(ctx, pipe, again)
	}
}

// execute sends a pipeline of requests. Each command has its own error.
func (t *Transport) execute(ctx context.Context, pipe redis.Pipeliner, requests []*request) {
	if requests[0].awaited {
		t.await(ctx, pipe, requests)
	}
	_, err := pipe.Exec(ctx)
	for _, r := range requests {
		r.cmd.leftBy(err)
	}
}
