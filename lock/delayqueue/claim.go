package delayqueue

import (
	"context"
	"crypto/rand"
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

// overtaken is the pause in the answer to a claim where the server knows a later one of
// the worker. The worker has made none: another client has written it.
const overtaken = -2

// renameClaims gives the worker's claims a key of their own.
func (w *worker) renameClaims() {
	w.keys = append(keysOf(w.queue.name), key("claim", w.queue.name)+":"+rand.Text())
}

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
	pause := r.number()
	c.pause = time.Duration(pause) * time.Microsecond
	if pause == overtaken {
		c.pause = 0
		w.renameClaims()
	}
	if damaged := r.number(); damaged > 0 {
		q.config.Logger.Error("delayqueue: messages were dropped or buried: another client has removed or damaged a part of them",
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
