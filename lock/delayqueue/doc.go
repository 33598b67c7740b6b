// Package delayqueue is a durable delay queue on Redis, for work that must survive
// the process that asked for it: a mail in an hour, a retry in a minute, a payment
// that is checked tomorrow.
//
//	queue, err := delayqueue.New(store, "mails", delayqueue.Config{})
//
//	id, err := queue.Put(ctx, delayqueue.Message{Payload: mail, Delay: time.Hour})
//
//	err = queue.Work(ctx, func(ctx context.Context, d *delayqueue.Delivery) error {
//		return send(ctx, d.Payload) // nil: done; an error: tried again later
//	}, delayqueue.WorkerConfig{})
//
// # The life of a message
//
// A message waits until its due time. Then one of the workers, in any number of
// processes, claims it for a lease, which the watchdog of package renewal prolongs
// in batches as long as the handler works. A handler that returns nil has done it,
// and the message is forgotten. One that returns an error, or panics, has it again
// after a backoff, and after the last attempt it becomes a dead letter, which stays
// to be looked at ([Queue.Dead]), revived or dropped. A message whose worker dies,
// freezes or loses the server goes to another one when the lease has ended.
//
// # What is promised
//
//   - Nothing is lost, as long as the server keeps its data: a message is
//     forgotten when a handler has returned nil, or when it is cancelled, and not
//     before.
//   - No two workers have a message at the same time, by their leases. The
//     context of a handler whose lease is lost ends, with cause [ErrLost], before
//     another worker can have the message.
//   - At least once: a worker that dies after its work but before its word has
//     reached the server has done work that is done again. [Delivery.Attempt]
//     counts; [Delivery.Token] is a fencing token, which grows from claim to
//     claim, so that a resource which compares tokens can refuse a late worker's
//     write. A Put whose answer is lost is sent again, and puts a message once more
//     that was handled meanwhile.
//   - A request that reaches the server more than a second after its caller gave up
//     changes nothing.
//   - Out of memory, the server refuses a Put whole, and still serves workers.
//   - Whatever other clients write under its keys, a worker goes on, and each run of a
//     script looks at some dozens of messages at most. A message whose record is damaged
//     becomes a dead letter.
//   - Never early, by the server's clock, which alone decides what is due. Late by
//     a tick of the wheel and a round trip, if a worker has room.
//   - In the order of due times, as far as several workers can have an order.
//
// A failover to a replica that lags behind forgets what the replica had not heard
// of: a message that was just put; that one was done, which then is done again; or
// that one was claimed, which then two workers have, until the first of them is told
// at its next renewal.
//
// # How workers wait
//
// A worker with room for more sleeps, as a timer on the wheel, until the first
// message is due or the first lease ends. A message that is due earlier than all
// others is told to them by pub/sub. Besides they look once in a while
// ([Config.Poll]), for there are messages that do not arrive. No message has a
// goroutine before it is handled.
//
// # What is on the server
//
// The queue called mails is
//
//	leasewheel_queue_due:{mails}            zset of the ids that wait, each with its due time in ms (Unix time)
//	leasewheel_queue_leased:{mails}         zset of those with workers, each with the ms at which its lease ends
//	leasewheel_queue_dead:{mails}           zset of the dead letters, each with the ms at which it died
//	leasewheel_queue_payload:{mails}        hash of payloads by id
//	leasewheel_queue_record:{mails}         hash of "attempt token put due nonce error" by id
//	leasewheel_queue_token:{mails}          the largest fencing token
//	leasewheel_queue_claim:{mails}:…        the latest claim of each worker, for as long as its leases
//	leasewheel_queue_channel:{mails}        channel that tells of a message due earlier than the others
//
// Names follow those of locks: one that holds a hash tag gives it to the keys. So
// all of a queue is on one server of a cluster, and a queue is as fast as that
// server; make several queues where one is not enough.
package delayqueue
