package delayqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/leasewheel/leasewheel/lock"
)

// counterLife is how long the fencing counter outlives the last claim. After that, tokens
// still grow by the server's clock.
const counterLife = time.Hour

// overtaken is the pause in the reply to a claim if the server has a later claim of this
// worker. The worker has made none: another client has written it.
const overtaken = -2

// renameClaims gives the worker a new random key for its claims.
func (w *worker) renameClaims() {
	w.keys = append(keysOf(w.queue.name), key("claim", w.queue.name)+":"+rand.Text())
}

// claim is the result of one claim request.
type claim struct {
	asked, answered time.Time // by the local clock
	// pause is how long after the reply more messages may be due; negative if none is
	// known.
	pause      time.Duration
	deliveries []*Delivery
}

// claim requests up to limit messages. If the reply to a claim was lost, claim repeats it
// by its number, so that its messages need not wait for the end of their leases.
func (w *worker) claim(limit int) (claim, error) {
	q := w.queue
	again := ""
	if w.again {
		again = "again"
	} else {
		w.seq++
	}
	c := claim{asked: time.Now()}
	// The worker's context does not bound this: the reply must be received.
	reply, err := q.once(context.WithoutCancel(w.ending), claimScript, w.keys,
		limit, w.config.TTL.Milliseconds(), max(0, w.config.MaxAttempts), strconv.FormatInt(w.seq, 10), again,
		batch, batchBytes, counterLife.Milliseconds(), ceilMillis(q.config.Retention))
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
		q.log.Error("delayqueue: messages were dropped or became dead letters: another client has removed or damaged a part of them",
			"queue", q.name, "messages", damaged)
	}
	if dropped := r.number(); dropped > 0 {
		q.log.Info("delayqueue: dead letters were dropped after Config.Retention",
			"queue", q.name, "letters", dropped, "retention", q.config.Retention)
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
