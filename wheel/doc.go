// Package wheel is a hashed timing wheel: it runs tasks after delays, by the
// million, on one goroutine. Use it where many timeouts are pending at once and
// most of them are cancelled or moved before they expire, or where many expire
// together: requests in flight, idle connections, retries, leases.
//
//	w, err := wheel.New(wheel.Config{})
//	…
//	defer w.Stop()
//	t, err := w.Schedule(30*time.Second, func() { conn.Close() })
//	…
//	t.Cancel()
//
// Tasks run on the wheel's worker, one after the other, unless an [Executor] is
// configured. On the worker they must not block; they may call everything in
// this package. A task that panics is logged and costs no other its turn.
//
// # What is promised
//
//   - Never early: a task runs once the monotonic clock has passed its deadline,
//     which is rounded up to a tick. On an idle machine it is at most a tick and
//     the latency of the system's timers late, see [Config.Precise].
//   - Never lost, never twice: what was scheduled is run, cancelled, or returned
//     by [Wheel.Stop], one of the three and once.
//   - Idle when there is nothing to do: the worker sleeps until the earliest
//     deadline, however far that is, and not from tick to tick.
//   - Late without harm: after a pause of any length everything that is due runs
//     at once, in the order of the deadlines, and no later deadline shifts.
//   - A cancelled task is let go at once, and its memory within a tick.
//
// The monotonic clock of most systems stands still while the machine is
// suspended, and the wheel with it.
//
// # Ground rules
//
// The design is that of Varghese and Lauck (scheme 6, "Hashed and Hierarchical
// Timing Wheels", 1987). It rests on a few rules, which the code keeps to:
//
//   - Only the worker links and unlinks what is in buckets, with the wheel's mu
//     held. All other goroutines touch one atomic state word per timeout, and
//     the inboxes. Stop and Drain look into buckets, under mu.
//   - Deadline and state share that word, so that reset, cancel and expiry are
//     decided by one compare-and-swap, and whoever wins owns the task.
//   - A deadline that moves to a later tick moves in the word alone: the worker
//     finds the timeout in its old bucket, and takes it to the new one.
//   - No lock is held while a task, an executor or a hook runs.
//   - Time becomes ticks in one file, and is always rounded up.
//   - The worker reads the clock before it empties the inboxes: what is due by
//     then is in one of them, so that it becomes due in order.
//   - A run of a periodic task begins by a compare-and-swap that a cancel has to
//     win, and the next one is planned in the same step.
//   - The buckets have no clock: the worker gives them the tick.
package wheel
