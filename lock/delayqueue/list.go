package delayqueue

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"strconv"
)

// ListOptions selects what [Queue.List] lists. Its zero value lists all messages.
type ListOptions struct {
	// States are the states of the listed messages. Default: all.
	States []State
	// MaxPayload is the most bytes of each payload; [Info.Size] is the size of the whole
	// one. Default: whole payloads. Negative: no payloads.
	MaxPayload int
}

// wants reports whether messages of a state are listed.
func (o *ListOptions) wants(state State) bool {
	return len(o.States) == 0 || slices.Contains(o.States, state)
}

// List lists messages, some dozens in a request, however many there are: first those that
// are ready and then those that are delayed, in the order of their due times, then those
// with workers by the ends of their leases, and the dead letters in the order of their
// deaths. The messages of workers whose leases have ended come first of all.
//
// The list is no snapshot, and the loop itself may change messages. A message that stays
// in its state, at its due time, is listed once. One that is put, moved, claimed or
// settled meanwhile may be listed in both of its states, or left out. An error ends the
// list.
func (q *Queue) List(ctx context.Context, o ListOptions) iter.Seq2[Info, error] {
	// To Lua, numbers from 2⁶³ on are negative.
	o.MaxPayload = min(max(0, cmp.Or(o.MaxPayload, math.MaxInt32)), math.MaxInt32)
	return func(yield func(Info, error) bool) {
		for _, state := range o.States {
			if state >= states {
				yield(Info{}, invalid("%v in ListOptions.States; accepted are Delayed, Ready, Leased and Dead", state))
				return
			}
		}
		l := listing{queue: q, options: o, now: "now", yield: yield}
		for _, part := range parts {
			if o.wants(part.state) && !l.part(ctx, part) {
				return
			}
		}
	}
}

// Dead lists the dead letters, as [Queue.List] does. They may be revived or dropped
// meanwhile, also by the loop itself, without others being skipped. One that dies again
// meanwhile is listed again.
func (q *Queue) Dead(ctx context.Context) iter.Seq2[Info, error] {
	return q.List(ctx, ListOptions{States: []State{Dead}})
}

// part is a part of a zset, whose messages are in one state.
type part struct {
	state State
	zset  string
}

// parts are in the order of the list. Those that are ready end with its time, and those that are
// delayed or leased begin after it.
var parts = []part{
	{Ready, "leased"}, // the leases have ended
	{Ready, "due"},
	{Delayed, "due"},
	{Leased, "leased"},
	{Dead, "dead"},
}

// position is that of a message in its zset. The score is as the server wrote it.
type position struct{ score, id string }

// listing is one list.
type listing struct {
	queue   *Queue
	options ListOptions
	yield   func(Info, error) bool
	// now is the time of the list by the server's clock, which divides a zset into its
	// parts: "now" until the first reply, then a ms.
	now string
}

// part lists a part. It returns false if the list is over.
func (l *listing) part(ctx context.Context, p part) bool {
	// If the last message is gone, the server continues from the first one of the same
	// score: those up to the last one were listed.
	var next, last position
	if p.state == Delayed || p.state == Leased {
		next.score = l.now
	}
	// A renewal moves a lease towards the end of its zset.
	renewed := make(map[string]bool)
	for more := true; more; {
		most := ""
		if p.state == Ready {
			most = l.now
		}
		reply, err := l.queue.ask(ctx, passing, listScript, p.zset, next.score, next.id, most, batch, batchBytes, l.options.MaxPayload)
		r := reader{parts: reply, err: err}
		now := r.time()
		if l.now == "now" {
			l.now = strconv.FormatInt(now.UnixMilli(), 10)
		}
		more, next = r.number() == 1, position{r.text(), r.text()}
		for r.err == nil && len(r.parts) > 0 {
			score, size := r.text(), int(r.number())
			info := r.info(now)
			at := position{score, info.ID}
			if r.err != nil || at.score == last.score && at.id <= last.id || renewed[at.id] {
				continue
			}
			if info.Size, last = size, at; p.state == Leased {
				renewed[at.id] = true
			}
			if l.options.wants(info.State) && !l.yield(info, nil) {
				return false
			}
		}
		if r.err != nil {
			l.yield(Info{}, r.err)
			return false
		}
	}
	return true
}
