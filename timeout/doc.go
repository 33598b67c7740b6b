// Package timeout holds the lifecycle of one scheduled task: its state word and
// the handle that its user keeps.
//
// A user holds a [Timeout], a small value that can be copied, compared and kept for ever.
// Engines (the wheel) use [Entry], the record behind it. Nothing of the engine can be
// reached from a Timeout, and this package never names one: a handle's methods call the
// [Engine] that owns the entry.
//
// # One state word, two exits
//
// An entry's state and deadline share one atomic word, so that no order of events can
// fire a task on a deadline that was taken back. A pending entry leaves that state once,
// to cancelled or to expired, by compare-and-swap. The winner owns the task:
//
//	          Rearm                Expire
//	idle ───────────────▶ pending ────────▶ expired
//	                       │   ▲
//	                Cancel │   │ Rearm (entries that are armed again)
//	                       ▼   │
//	                     cancelled
//
// # Lives
//
// Engines reuse the memory of entries. Every use is a life with a number of its own. A
// Timeout stores the life that it was made for, and a handle of an earlier life does
// nothing.
package timeout
