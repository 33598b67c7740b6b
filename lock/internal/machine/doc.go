// Package machine is the meaning of the locks: the state of one name, and for each request a
// step that changes it at a given instant. It has no clock, no storage, no goroutine. A store
// is right if it does what the machine does. The scripts of package redisstore are compared
// with it, on a server, under random operations.
//
// A step returns the reply and the messages to subscribers, which last until the next step. It drops what has ended before its
// instant, so nothing needs a timer. A request that arrives later than one second after its
// deadline must make no step, see [driver.Store]: a store checks that before.
//
// # Which kinds share a name
//
// A lock excludes locks of the other kinds under its name, but only waiters of its own kind
// are woken.
//
//	under the name     | mutex, fair       | read, write | semaphore, permit, latch
//	nothing            | free              | free        | none
//	mutex or fair lock | held              | Foreign     | Foreign
//	read-write lock    | held              | held        | Foreign
//	count              | Foreign           | Foreign     | the same number
//
// # What is granted, and what a repeated request answers
//
//	kind       | granted if                       | again to its owner             | token
//	mutex      | free, and the owner is the first | sets the holds to Count        | kept
//	           | living waiter, or none is left   |                                |
//	fair       | free, and the owner is the first | sets the holds to Count        | kept
//	           | whose place has not ended        |                                |
//	read       | no writer but Under, no claim,   | raises the holds to Count      | that of all
//	           | unless the writer is Under       |                                | readers together
//	write      | no living reader, no writer      | raises the holds to Count      | kept
//	semaphore  | as many permits are available    | takes nothing while remembered | none
//	permit     | as many permits are available    | takes those that were reclaimed| a new one
//	latch      | no count above zero              | as the first                   | none
//
// With Count > 1 an owner without a hold of a mutex, fair, read or write lock is NotHeld, of
// a free one, too. A new TTL replaces that of a mutex or a fair lock, and of a reader's latest
// hold. It never shortens a read-write lock as a whole, which may have other holders.
//
// A grant of a free name has a larger token than all grants before. Readers that join others,
// or a writer, share the last one.
//
// # Who is woken
//
//	event                                  | mutex             | fair      | read, write
//	release of the last hold               | the first living  | the head  | all, if it is
//	                                       | waiter, by a grant|           | free then
//	… and no waiter is left, or others wait| all               |           |
//	release of the writer                  |                   |           | all
//	release while others hold it           | none              | none      | none
//	the first in the queue gives up        | none              | the head, | all, if it has the
//	                                       |                   | if free   | claim
//	the end of a lease                     | none: a waiter    | none      | none
//	                                       | asks after TTL    |           |
//	a request finds the dead at the head   | the first living, | the head, | none
//	                                       | by a grant        | if free   |
//	ForceRelease                           | all, the head of a fair lock's queue
//
//	event                       | semaphore, permit | latch
//	a release, permits added    | all               |
//	expired permits reclaimed   | all               |
//	created                     | all, if N > 0     | all
//	zero reached, or deleted    | none              | all
//
// A waiter of a mutex is alive while its client is subscribed, one of a fair lock for
// driver.Hold.Queue.Keep after each request. A release also skips a fair lock's waiter that was
// subscribed at its last request and is not any more.
//
// # What the machine leaves to a store
//
// How many entries one request looks at: a store may leave the rest of many dead waiters, or
// expired permits, to later requests. How long it keeps the last token without a grant. The
// records of clients. Which requests a kind has: [driver.CountSet] is for permits alone. And
// when a free mutex is left to clients that poll.
package machine

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// What every kind of lock means: doc.go, state.go, and a file for each kind.
// Tests: lock/internal/machine/machinetest/differential.go, which lock/redisstore/differential_test.go and
// lock/pgstore/differential_test.go run, lock/memstore/suite_test.go, machine_test.go, property_test.go.
// Planted: 222, 281, 282, 292, 293, 294, 298, 299, 300, 301, 322, 453.
//
// What stores in this module share beside it: requests.go, subscribers.go, turns.go. What is stored
// of a state: code.go, apart.go. What the end of a process frees: owners.go.
// Tests: lock/memstore/suite_test.go, lock/filestore/suite_test.go, property_test.go, turns_test.go.
