package transport

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"
)

// RunEach runs n requests in batches, one for each script, and in a cluster for each slot.
// Several batches share one pipeline. add appends the keys and arguments of request i to the
// call of its batch, which join returns, or does not join. A batch's reply has an element for
// each of its requests; answer gets that, or an error. If the server refuses a batch, and one
// of its requests may be the reason, RunEach sends each of them again in a run of its own.
func (t *Transport) RunEach(ctx context.Context, n int, add func(i int, join func(sc *Script, key string) *Call), answer func(i int, reply any)) {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	if apart := t.runBatches(ctx, all, n, add, answer); apart != nil {
		t.runBatches(ctx, apart, 1, add, answer)
	}
}

// members is a batch: one run of a script, and the numbers of its requests.
type members struct {
	Call
	numbers []int
}

// runBatches runs some requests, at most so many in a batch. It returns those to be repeated.
func (t *Transport) runBatches(ctx context.Context, some []int, most int, add func(i int, join func(sc *Script, key string) *Call), answer func(i int, reply any)) (apart []int) {
	type together struct {
		script *Script
		tag    string
	}
	var batches []*members
	var calls []*Call
	open := make(map[together]*members)
	var number int
	join := func(sc *Script, key string) *Call {
		run, room := together{script: sc}, min(len(some), most)
		if t.cluster != nil {
			run.tag, room = HashTag(key), 1
		}
		b := open[run]
		if b == nil || len(b.numbers) == most {
			b = &members{Call{sc, make([]any, 0, room), make([]any, 0, 3*room)}, make([]int, 0, room)}
			open[run] = b
			batches, calls = append(batches, b), append(calls, &b.Call)
		}
		b.numbers = append(b.numbers, number)
		return &b.Call
	}
	for _, number = range some {
		add(number, join)
	}
	for at, reply := range t.RunAll(ctx, calls) {
		b := batches[at]
		err, _ := reply.(error)
		if len(b.numbers) > 1 && fault.OfOneKey(err) {
			apart = append(apart, b.numbers...)
			continue
		}
		replies, _ := reply.([]any)
		if err == nil && len(replies) != len(b.numbers) {
			err = fault.Unexpected(reply)
		}
		for n, i := range b.numbers {
			if err != nil {
				answer(i, err)
			} else {
				answer(i, replies[n])
			}
		}
	}
	return apart
}
