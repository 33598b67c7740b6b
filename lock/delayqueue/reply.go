package delayqueue

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// errReply is the error for a reply that no script gives.
var errReply = errors.New("delayqueue: unexpected reply from the server")

// reader reads the parts of a script's reply one by one. The first unexpected part
// becomes its err, and all later parts are empty.
type reader struct {
	parts []any
	err   error
}

// take reads a part of type T.
func take[T any](r *reader) (part T) {
	var next any
	if len(r.parts) > 0 {
		next, r.parts = r.parts[0], r.parts[1:]
	}
	part, ok := next.(T)
	if !ok {
		r.fail(next)
	}
	return part
}

func (r *reader) fail(part any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %T", errReply, part)
	}
}

func (r *reader) text() string { return take[string](r) }

// number reads an integer, also one in a string, as Lua returns large ones.
func (r *reader) number() int64 {
	switch part := take[any](r).(type) {
	case int64:
		return part
	case string:
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			r.fail(part)
		}
		return n
	default:
		r.fail(part)
		return 0
	}
}

// time reads an instant in ms.
func (r *reader) time() time.Time { return time.UnixMilli(r.number()) }

// codes reads the codes for n messages in the reply to a request, unless that failed.
func codes(n int, reply []any, err error) ([]int64, error) {
	r := reader{reply, err}
	codes := make([]int64, n)
	for i := range codes {
		codes[i] = r.number()
	}
	return codes, r.err
}
