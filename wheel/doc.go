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
// configured. On the worker they must not block; they may call everything in this
// package. A task that panics is logged, and the next task runs all the same. Timers of
// [Timer.InitOnWorker] run on the worker even then: an executor may refuse a task. No limit
// on pending timeouts refuses these either.
//
// # What is promised
//
//   - Never early: a task runs once the monotonic clock has passed its deadline,
//     which is rounded up to a tick. On an idle machine it is late by at most a tick
//     plus the latency of the system's timers, see [Config.Precise].
//   - Never lost, never twice: every scheduled task is either run, cancelled, or
//     returned by [Wheel.Stop], exactly once.
//   - Idle without work: the worker sleeps until the earliest deadline, however far
//     that is, and not from tick to tick.
//   - Late without harm: after a pause of any length all due tasks run at once, in
//     the order of their deadlines, and no later deadline shifts.
//   - Freed on cancel: a cancelled task is released at once, its memory within a tick. Tasks
//     that receive their timeout, and periodic ones, are released with the memory.
//
// The monotonic clock of most systems stands still while the machine is suspended, and
// the wheel with it.
//
// # Ground rules
//
// The design is that of Varghese and Lauck (scheme 6, "Hashed and Hierarchical Timing
// Wheels", 1987). The code keeps these rules:
//
//   - Only the worker links and unlinks nodes in buckets, with the wheel's mu held.
//     Other goroutines touch one atomic state word per timeout, and the inboxes.
//     Stop and Drain read the buckets, under mu.
//   - Deadline and state share that word, so one compare-and-swap decides between
//     reset, cancel and expiry. The winner owns the task.
//   - A deadline that moves to a later tick moves in the word alone: the worker
//     finds the timeout in its old bucket and moves it to the new one.
//   - No lock is held while a task, an executor or a hook runs.
//   - Time becomes ticks in one file, and is always rounded up.
//   - The worker reads the clock before it empties the inboxes. Everything due by
//     that reading is already in one of them, so it becomes due in order.
//   - A run of a periodic task begins by a compare-and-swap that a cancel competes
//     for. The same step plans the next run.
//   - The buckets have no clock: the worker passes them the tick.
package wheel

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code. Packages timeout and bucket are here
// too.
//
// Rounding to ticks: ticks.go.
// Tests: ticks_test.go, early_real_test.go.
//
// Buckets, catching up after a pause: ring.go, overdue.go, bucket/bucket.go.
// Tests: ring_test.go, model_test.go, late_test.go, order_test.go, stop_test.go.
// Planted: 107, 108, 114.
//
// Cancel, reset, their races: timeout/entry.go, timeout/adopted.go, bucket/inbox.go,
// bucket/timers.go, arm.go.
// Tests: timeout/entry_test.go, timeout/adopted_test.go, bucket/inbox_test.go,
// arm_test.go, cancel_test.go, reset_test.go, race_test.go, stress_test.go.
// Planted: 86, 87, 100, 101, 102, 110, 111, 112, 113, 202, 203, 205, 587, 588.
//
// The limit of pending timeouts: wheel.go Wheel.reserve(), worker.go Wheel.fired().
// Tests: full_test.go. Planted: 571.
//
// How goroutines reach the worker, and its sleep: shard.go, worker.go Wheel.sleep(),
// alarm.go, alarm_linux.go.
// Tests: shard_test.go, idle_test.go, alarm_linux_test.go.
// Planted: 200, 201, 204, 480.
//
// Periodic tasks, tasks on executors: periodic.go, executor.go, dispatch.go.
// Tests: periodic_test.go, executor_test.go.
// Planted: 103, 104, 105, 106, 109, 115, 284.
