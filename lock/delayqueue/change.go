package delayqueue

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// The operations on single messages.

// Move changes the due time of a waiting message, due or not. It returns [ErrNotFound],
// [ErrLeased] while a worker's lease runs, or [ErrDead].
func (q *Queue) Move(ctx context.Context, id string, due time.Time) error {
	if due.IsZero() {
		return invalid("Move needs a due time; use time.Now for at once")
	}
	return q.move(ctx, Message{ID: id, Due: due})
}

// MoveIn is [Queue.Move] to d from now, by the server's clock.
func (q *Queue) MoveIn(ctx context.Context, id string, d time.Duration) error {
	return q.move(ctx, Message{ID: id, Delay: d})
}

func (q *Queue) move(ctx context.Context, m Message) error {
	if err := ValidateID(m.ID); err != nil {
		return err
	}
	if err := m.prepare(0, time.Now()); err != nil {
		return err
	}
	kind, ms := m.instant()
	reply, err := q.ask(ctx, passing, moveScript, m.ID, kind, ms)
	return q.changed(m.ID, reply, err)
}

// Cancel drops a waiting message, or a dead letter. It returns [ErrNotFound], or
// [ErrLeased] while a worker's lease runs. After [ErrUnavailable] the message may have
// been dropped.
func (q *Queue) Cancel(ctx context.Context, id string) error {
	if err := ValidateID(id); err != nil {
		return err
	}
	// A repeated request would not find the message that the first one dropped.
	reply, err := q.ask(ctx, undone, cancelScript, id)
	return q.changed(id, reply, err)
}

// changed parses a script's reply for one message.
func (q *Queue) changed(id string, reply []any, err error) error {
	outcomes, err := codes(1, reply, err)
	if err != nil {
		return err
	}
	switch outcomes[0] {
	case 1:
		return nil
	case -1:
		err = ErrLeased
	case -2:
		err = ErrDead
	default:
		err = ErrNotFound
	}
	return fmt.Errorf("delayqueue: %q: message %q: %w", q.name, id, err)
}

// Revive returns dead letters to the queue, due at once and with their attempts counted
// from zero again, and returns how many of these ids were dead letters. After
// [ErrUnavailable] it may have revived more.
func (q *Queue) Revive(ctx context.Context, ids ...string) (revived int, err error) {
	for _, id := range ids {
		if err := ValidateID(id); err != nil {
			return 0, err
		}
	}
	for some := range slices.Chunk(ids, batch) {
		var args []any
		for _, id := range some {
			args = append(args, id)
		}
		// A repeated request would not find the letters that the first one revived, or
		// would find them dead again.
		reply, err := q.ask(ctx, undone, reviveScript, args...)
		outcomes, err := codes(len(some), reply, err)
		if err != nil {
			return revived, err
		}
		for _, outcome := range outcomes {
			revived += int(outcome)
		}
	}
	return revived, nil
}
