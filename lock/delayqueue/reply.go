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

func (r *reader) next() any {
	if len(r.parts) == 0 {
		r.fail(nil)
		return nil
	}
	part := r.parts[0]
	r.parts = r.parts[1:]
	return part
}

func (r *reader) fail(part any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %T", errReply, part)
	}
}

func (r *reader) text() string {
	part := r.next()
	text, ok := part.(string)
	if !ok {
		r.fail(part)
	}
	return text
}

// list reads a list, which is empty after a failure.
func (r *reader) list() []any {
	part := r.next()
	list, ok := part.([]any)
	if !ok {
		r.fail(part)
	}
	return list
}

// number reads an integer, also one in a string, as Lua returns large ones.
func (r *reader) number() int64 {
	switch part := r.next().(type) {
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

// codes reads a script's codes for n messages.
func codes(reply []any, n int) ([]int64, error) {
	r := reader{parts: reply}
	codes := make([]int64, n)
	for i := range codes {
		codes[i] = r.number()
	}
	return codes, r.err
}
