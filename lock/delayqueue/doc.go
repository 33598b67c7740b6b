// Package delayqueue is a durable delay queue on Redis, for work that must survive the
// process that requested it: a mail in an hour, a retry in a minute, a payment that is
// checked tomorrow.
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
// processes, claims it for a lease. The watchdog of package renewal prolongs the leases
// in batches while the handlers work. If the handler returns nil, the message is done and
// deleted. If it returns an error, or panics, the message is retried after a backoff.
// After the last attempt the message becomes a dead letter, which can be inspected
// ([Queue.Dead]), revived or dropped; [Config.Retention] drops it after some time. If a
// worker dies, freezes or loses the server, another one gets the message when the lease
// has ended. [Queue.List] lists messages of any state.
//
// # Promises
//
//   - No message is lost, as long as the server keeps its data. A message is deleted
//     when a handler has returned nil, or when it is cancelled, and not before; a dead
//     letter also after [Config.Retention], if one is set.
//   - No two workers have a message at the same time, by their leases. When a lease is
//     lost, the handler's context ends with cause [ErrLost] before another worker can
//     have the message.
//   - Delivery is at least once. If a worker dies after its work but before the outcome
//     has reached the server, the work is done again. [Delivery.Attempt] counts.
//     [Delivery.Token] is a fencing token, which grows from claim to claim, so that a
//     resource which compares tokens can refuse a late worker's write. A Put whose reply
//     is lost is repeated, and puts a message once more if it was handled meanwhile.
//   - A request that reaches the server more than a second after its caller gave up
//     changes nothing.
//   - A server out of memory refuses a Put as a whole, and still serves workers.
//   - Workers continue even if other clients write to the queue's keys. Each run of a
//     script looks at some dozens of messages at most. A message whose record is damaged
//     becomes a dead letter.
//   - Messages are never early, by the server's clock, which alone decides what is due.
//     They are late by a tick of the wheel and a round trip, if a worker has room.
//   - Messages are claimed in the order of due times. Several workers handle them
//     concurrently.
//
// Due times and the ends of leases are instants of the server's clock. If a cluster moves a
// queue to a master whose clock is ahead, or a replica whose clock is ahead takes over, they
// come earlier by the difference. One of less than two thirds of [WorkerConfig.TTL] is made up
// for by the next renewal; after a larger one two workers have a message until the first of
// them fails to renew it.
//
// A failover to a lagging replica loses what the replica had not received. If that is a
// Put, the message is lost. If it is an outcome, the message is handled again. If it is a
// claim, two workers have the message until the first of them fails to renew it.
//
// # Kinds of jobs
//
// A queue knows no kinds of messages: a payload is bytes. A program puts the kind into the
// payload, as the example of [Handler] does, or uses one queue for each kind. With a queue
// for each, a kind has a backlog, a concurrency, retries and dead letters of its own, and
// slow jobs of one kind do not delay the others. A handler that does not know a kind
// should [Reject] it.
//
// # How workers wait
//
// A worker with room for more sleeps, as a timer on the wheel, until the first message is
// due or the first lease ends. Pub/sub notifies it of a message that is due earlier than
// all others. It also polls now and then ([Config.Poll]), since notifications may be
// lost. No message has a goroutine before it is handled.
//
// # What is on the server
//
// The queue called mails is
//
//	leasewheel_queue_due:{mails}            zset of the waiting ids, each with its due time in ms (Unix time)
//	leasewheel_queue_leased:{mails}         zset of those with workers, each with the ms at which its lease ends
//	leasewheel_queue_dead:{mails}           zset of the dead letters, each with the ms at which it died
//	leasewheel_queue_payload:{mails}        hash of payloads by id
//	leasewheel_queue_record:{mails}         hash of "attempt token put due nonce error" by id
//	leasewheel_queue_token:{mails}          the largest fencing token
//	leasewheel_queue_claim:{mails}:…        the latest claim of each worker, for as long as its leases
//	leasewheel_queue_channel:{mails}        channel; notifies of a message due earlier than the others
//
// Names follow those of locks: if a name holds a hash tag, the keys use it. The store's Prefix
// is for locks alone: queues of one name on one server are the same queue. A queue is on one
// server of a cluster, and as fast as that; use several queues if one is not fast enough. While a
// cluster moves its slot, leases are renewed; all other requests wait.
package delayqueue

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Lists: list.go, list.lua, info.lua; cmd/leasewheel/internal/queue/list.go,
// docs/queue-message.schema.json.
// Tests: list_test.go, model_test.go, cmd/leasewheel/queue_test.go.
// Planted: 89, 152, 421.
//
// Transactions: transaction.go, put.lua; lock/redisstore/extend.go.
// Tests: transaction_test.go.
// Planted: 188.
//
// Claims and leases: claim.lua, queue.lua, worker.go, script.go; keys of another kind: keys.go, kinds.lua.
// Tests: claim_test.go, retention_test.go, model_test.go, timing_test.go, faults_test.go, untrusted_test.go.
// Planted: 35, 36, 49, 270, 308, 334, 367, 387, 395, 410, 497, 498, 499, 546, 569, 589.
//
// Results and retries: handle.go, settlement.go, settle.lua, backoff.go.
// Tests: timing_test.go, faults_test.go, promises_test.go.
// Planted: 38, 267, 268, 269, 285, 450, 670.
//
// Messages to users' loggers: lock/internal/logging/logger.go.
// Tests: logger_test.go, lock/internal/logging/logger_test.go.
