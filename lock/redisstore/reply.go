package redisstore

import (
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/renewal"
)

// What a script replies is within bounds, or an error: a proxy may alter replies.

func answerOfMutex(reply any, h *driver.Hold) (driver.Answer, error) {
	n, err := numbers(reply, 3)
	if err != nil {
		return driver.Answer{}, err
	}
	a, err := answer(reply, h)
	switch granted := a.Verdict == driver.Granted; {
	case granted && (n[2] < 0 || n[2] > h.Queue.Reserve):
		return driver.Answer{}, fault.Unexpected(reply)
	case granted:
		a.Reserved = n[2]
	case n[2] > 0:
		a.At = time.UnixMicro(n[2])
	}
	return a, err
}

// clockOf returns the server's clock from the end of a mutex's reply, zero if it has none.
func clockOf(reply any) time.Time {
	if n, err := numbers(reply, 4); err == nil && n[3] >= 0 && n[3] <= lua.MaxNumber {
		return time.UnixMicro(n[3])
	}
	return time.Time{}
}

// answer parses a script's reply to an acquisition.
func answer(reply any, _ *driver.Hold) (driver.Answer, error) {
	n, err := numbers(reply, 2)
	if err != nil {
		return driver.Answer{}, err
	}
	switch value := n[1]; n[0] {
	case 1:
		if value < 0 || value > lua.MaxNumber {
			return driver.Answer{}, fault.Unexpected(reply)
		}
		return driver.Answer{Verdict: driver.Granted, Token: value}, nil
	case 0:
		return driver.Answer{Wait: remaining(value)}, nil
	case 2:
		return driver.Answer{Wait: remaining(value), Foreign: true}, nil
	case 3:
		return driver.Answer{Verdict: driver.NotHeld}, nil
	case 4:
		return driver.Answer{Wait: remaining(value), Behind: true}, nil
	case 5:
		return driver.Answer{Wait: remaining(value), Unfinished: true}, nil
	}
	return driver.Answer{}, fault.Unexpected(reply)
}

// remaining converts a reply of PTTL, with zero for a key that never expires. A key in
// its last millisecond has 0 ms left, which must not become zero.
func remaining(pttl int64) time.Duration {
	const longest = math.MaxInt64 / int64(time.Millisecond)
	if pttl < 0 {
		return 0
	}
	return time.Duration(min(max(pttl, 1), longest)) * time.Millisecond
}

// numbers returns a script's reply of numbers: at least so many, and at most four.
func numbers(reply any, least int) (n [4]int64, err error) {
	list, ok := reply.([]any)
	ok = ok && len(list) >= least && len(list) <= len(n)
	for i := 0; ok && i < len(list); i++ {
		n[i], ok = list[i].(int64)
	}
	if !ok {
		err = fault.Unexpected(reply)
	}
	return n, err
}

// renewed stores the script's reply for one lease: a code, the ms for which it was prolonged,
// or an error. A script returns the text of the server's error: an error reply inside an array
// would make go-redis lose its place in the stream, see docs/upstream.md.
func renewed(lease *renewal.Item, reply any) {
	switch reply := reply.(type) {
	case error:
		lease.Err = reply
	case string:
		lease.Err = fault.Classify(fault.Refusal(reply))
	case int64:
		switch {
		case reply > 1:
			lease.Outcome, lease.Given = renewal.Renewed, remaining(reply)
		case reply >= -1:
			lease.Outcome = [...]renewal.Outcome{renewal.Taken, renewal.Gone, renewal.Renewed}[reply+1]
		default:
			lease.Err = fault.Unexpected(reply)
		}
	default:
		lease.Err = fault.Unexpected(reply)
	}
}

// printable reports whether a leasewheel client may have written this text: it will
// appear on terminals.
func printable(text string) bool {
	return len(text) <= driver.MaxName && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// replyReader splits a script's reply field by field. After one unexpected field the
// whole reply has failed.
type replyReader struct {
	fields []any
	failed bool
}

func field[T any](r *replyReader) (value T) {
	if len(r.fields) > 0 {
		if value, ok := r.fields[0].(T); ok {
			r.fields = r.fields[1:]
			return value
		}
	}
	r.failed = true
	return value
}

func (r *replyReader) text() string  { return field[string](r) }
func (r *replyReader) number() int64 { return field[int64](r) }

// optional reads a text that may be absent, at the end of a reply.
func (r *replyReader) optional() string {
	if len(r.fields) == 0 || r.fields[0] == nil {
		return ""
	}
	return r.text()
}

// list reads a field that is a list of strings.
func (r *replyReader) list() []string {
	inner := replyReader{fields: field[[]any](r)}
	var texts []string
	for len(inner.fields) > 0 && !inner.failed {
		texts = append(texts, inner.text())
	}
	r.failed = r.failed || inner.failed
	return texts
}
