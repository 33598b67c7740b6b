package delayqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// TxPut is a Put in a transaction; see [Queue.PutTx].
type TxPut struct {
	// ID is the id of the message.
	ID string

	queue  string
	result func() (reply any, err error)
}

// PutTx adds a Put to a transaction of the caller's, for the same server and database as
// the queue's store: the message is put if, and only if, the server executes the
// transaction. Nothing is sent before. [TxPut.Err] then returns the result.
//
//	pipe := client.TxPipeline()
//	pipe.HSet(ctx, "order:7", "state", "unpaid")
//	reminder, err := queue.PutTx(ctx, pipe, message)
//	…
//	_, err = pipe.Exec(ctx)
//
// Workers are notified as by [Queue.Put]. These are the differences:
//
//   - Redis does not roll back. If the queue has a message of the id already, that one
//     stays as it is ([ErrDuplicate]), and the rest of the transaction takes effect. Leave
//     Message.ID empty, or use one that no other change uses.
//   - For the same reason [Config.MaxLength] is not enforced.
//   - A server out of memory refuses the transaction as a whole, or executes it as a
//     whole, with the message: never a part. If another command of it may need memory, all
//     servers refuse it; otherwise Redis 7.0 refuses it, and Redis 8 and Valkey execute it.
//   - The script fails alone if another client has replaced the queue's keys by other
//     data, or the user lacks a right that it needs.
//   - There is no deadline: a transaction that reaches the server late takes effect, and
//     the message's Delay counts from then.
//   - In a cluster all keys of a transaction must be in one slot: give the queue's name
//     the hash tag of the other keys, as in "{order:7}:mails".
//
// The script is sent with its source, about 8 KiB. On a pipeline without a transaction
// the message is put by itself.
func (q *Queue) PutTx(ctx context.Context, tx redisstore.Pipeline, m Message) (*TxPut, error) {
	if q.closed.Err() != nil {
		return nil, ErrClosed
	}
	if err := m.prepare(q.config.MaxPayload, time.Now()); err != nil {
		return nil, err
	}
	// In a cluster this may ask a server, once.
	asking, cancel := context.WithTimeout(ctx, q.config.RequestTimeout)
	defer cancel()
	publish, err := q.store.PublishCommand(asking)
	if err != nil {
		return nil, fmt.Errorf("delayqueue: %q: %w", q.name, err)
	}
	args := append([]any{publish, "transaction"}, m.args(rand.Text()[:13]+"0.0")...)
	result := putScript.Queue(ctx, tx, q.keys, args...)
	return &TxPut{ID: m.ID, queue: q.name, result: result}, nil
}

// Err returns nil if the transaction has put the message, [ErrDuplicate] if the queue had
// one of that id, and otherwise the error of go-redis, such as redis.TxFailedErr, or the
// server's. After an error of the connection the transaction may have been executed.
func (p *TxPut) Err() error {
	reply, err := p.result()
	if err == nil && reply == nil {
		err = errors.New("the transaction was not executed yet, or discarded")
	}
	list, _ := reply.([]any)
	outcomes, err := codes(1, list, err)
	switch {
	case err == nil && outcomes[0] == 1:
		return nil
	case err == nil:
		err = ErrDuplicate
	}
	return fmt.Errorf("delayqueue: %q: message %q: %w", p.queue, p.ID, err)
}
