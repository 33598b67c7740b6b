package transport

import (
	"github.com/redis/go-redis/v9"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

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

// result returns the reply once the command has run. tardy means that the request arrived
// late and has no reply.
func (t *Transport) result(r *request) (reply any, tardy bool, err error) {
	if err := r.cmd.Err(); err != nil {
		err = fault.Classify(err)
		t.Doubt(err)
		return nil, false, err
	}
	reply = r.cmd.Val()
	if r.reading != nil && late(reply) {
		r.node.clock.forget(r.reading)
		r.node = nil
		return nil, true, nil
	}
	if r.wait != nil {
		reply, err = t.replicated(r.wait, reply)
	}
	return reply, false, err
}

// tooLate is the reply to a request whose deadline has passed, also to one with a run of its
// own, there in an array. It has done nothing.
const tooLate = "late"

// late reports whether a script did nothing because its deadline had passed.
func late(reply any) bool {
	list, ok := reply.([]any)
	return ok && len(list) == 1 && list[0] == tooLate
}
