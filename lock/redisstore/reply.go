package redisstore

import (
	"math"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/lua"
	"github.com/leasewheel/leasewheel/renewal"
)

// What a script replies is within bounds, or an error: a proxy may alter replies.

func answerOfMutex(reply any, h *driver.Hold) (driver.Answer, error) {
	list, ok := reply.([]any)
	if !ok || len(list) < 3 {
		return driver.Answer{}, fault.Unexpected(reply)
	}
	a, err := answer(list[:2], h)
	switch more, _ := list[2].(int64); {
	case a.Verdict == driver.Granted:
		if more < 0 || more > h.Queue.Reserve {
			return driver.Answer{}, fault.Unexpected(reply)
		}
		a.Reserved = more
	case more > 0:
		a.At = time.UnixMicro(more)
	}
	return a, err
}

// clockOf returns the server's clock from the end of a mutex's reply, zero if it has none.
func clockOf(reply any) time.Time {
	list, _ := reply.([]any)
	if len(list) != 4 {
		return time.Time{}
	}
	micros, ok := list[3].(int64)
	if !ok || micros < 0 || micros > lua.MaxNumber {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// answer parses a script's reply to an acquisition.
func answer(reply any, _ *driver.Hold) (driver.Answer, error) {
	code, value, err := pair(reply)
	if err != nil {
		return driver.Answer{}, err
	}
	switch code {
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

// pair splits a script's reply of two integers.
func pair(reply any) (first, second int64, err error) {
	list, ok := reply.([]any)
	if !ok || len(list) != 2 {
		return 0, 0, fault.Unexpected(reply)
	}
	first, ok1 := list[0].(int64)
	second, ok2 := list[1].(int64)
	if !ok1 || !ok2 {
		return 0, 0, fault.Unexpected(reply)
	}
	return first, second, nil
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
