package delayqueue

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// counterLife is how long the fencing counter outlives the last claim. Tokens go on
// growing after that, by the server's clock.
const counterLife = time.Hour

// channelKey is the place of the channel among the keys.
const channelKey = 6

// claim is what a request for messages has brought.
type claim struct {
	asked, answered time.Time // by the local clock
	// pause is how long after the answer there may be more; negative if nothing is
	// in sight.
	pause      time.Duration
	deliveries []*Delivery
}

// claim asks for up to limit messages. A claim whose answer was lost is asked for
// again, by its number, so that its messages need not wait for the end of their
// leases.
func (w *worker) claim(limit int) (claim, error) {
	q := w.queue
	again := ""
	if w.again {
		again = "again"
	} else {
		w.seq++
	}
	c := claim{asked: time.Now()}
	// Not by the worker's context: what the server gives must be known.
	reply, err := q.onceWith(context.WithoutCancel(w.ending), claimScript, w.keys,
		limit, w.config.TTL.Milliseconds(), max(0, w.config.MaxAttempts), strconv.FormatInt(w.seq, 10), again,
		batch, batchBytes, counterLife.Milliseconds())
	c.answered = time.Now()
	if err != nil {
		w.again = w.again || !errors.Is(err, lock.ErrNotDone)
		return c, err
	}
	w.again = false
	r := reader{parts: reply}
	now := r.time()
	c.pause = time.Duration(r.number()) * time.Microsecond
	if damaged := r.number(); damaged > 0 {
		q.config.Logger.Error("delayqueue: messages were dropped: another client has removed a part of them",
			"queue", q.name, "messages", damaged)
	}
	for r.err == nil && len(r.parts) > 0 {
		d := &Delivery{Claimed: now}
		d.ID, d.Payload = r.text(), []byte(r.text())
		d.Attempt, d.Token = int(r.number()), r.number()
		d.Put, d.Due, d.LastError = r.time(), r.time(), r.text()
		c.deliveries = append(c.deliveries, d)
	}
	return c, r.err
}
