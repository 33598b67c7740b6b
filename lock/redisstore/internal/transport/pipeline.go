package transport

import "context"

// RunAll runs calls in one pipeline, bounded by ctx, and returns their replies, each of which
// may be an error.
func (t *Transport) RunAll(ctx context.Context, calls []*Call) []any {
	if len(calls) == 1 {
		reply, err := t.runOne(&request{ctx: ctx, Call: calls[0], awaited: t.awaited(calls[0])})
		if err != nil {
			reply = err
		}
		return []any{reply}
	}
	requests := make([]*request, len(calls))
	for i, c := range calls {
		requests[i] = &request{ctx: ctx, Call: c, awaited: t.awaited(c)}
	}
	t.repeat(ctx, requests, lateTries)
	replies := make([]any, len(calls))
	for i, r := range requests {
		replies[i] = r.reply
	}
	return replies
}

// repeat runs requests in one pipeline, bounded by ctx, and sets their replies. Each
// request's deadline comes from its own context. One that arrives late is sent so many times.
func (t *Transport) repeat(ctx context.Context, requests []*request, tries int) {
	for range tries {
		requests = t.runPipeline(ctx, requests)
	}
	for _, r := range requests {
		r.reply = errLate
	}
}

// runPipeline does so once. It returns the requests that are to be repeated: those that
// arrived late, and those that a shared run has left undone.
func (t *Transport) runPipeline(ctx context.Context, requests []*request) (again []*request) {
	sent := make([]*request, 0, len(requests))
	for _, r := range requests {
		if err := t.prepare(r); err != nil {
			again = append(again, t.settle(r, nil, err)...)
			continue
		}
		sent = append(sent, r)
	}
	t.exec(ctx, sent)
	for _, r := range sent {
		if reply, tardy, err := t.result(r); tardy {
			again = append(again, r.inTime()...)
		} else {
			again = append(again, t.settle(r, reply, err)...)
		}
	}
	return again
}
