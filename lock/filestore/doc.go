// Package filestore keeps locks in a folder of one Linux machine, with no server: they exclude
// the processes of one user. It locks nothing on other machines and refuses the file systems of
// networks, such as NFS: for several machines take a store on a server, such as package
// redisstore. On other systems New returns an error that matches driver.ErrUnsupported.
//
//	store, err := filestore.New("/run/user/1000/orders")
//	locker, err := lock.New(store, lock.Config{})
//
// It is flock(1) with what that lacks: leases that end if their holder hangs, fencing tokens,
// queues, read-write locks, semaphores, inspection. Every kind of lock is supported.
//
// # The end of a process
//
// The kernel shows when a process has ended, however that was: what it held is free at once, and
// the next waiter is woken, also if the process was killed between a release and its message.
// Permits of a semaphore that do not expire stay taken, and so does what is kept by
// driver.Hold.Keep. A store that is closed leaves its locks to their TTLs, as on every store. A
// process that is only stopped keeps its locks for their TTLs. Stopped in the middle of a
// request, which takes some µs, it delays the other requests for that name: they fail at their
// deadlines, without one after a second, with an error that matches driver.ErrUnavailable.
//
// # What survives
//
// A process that is killed while it writes leaves the state of before or of after. TTLs count by
// the system's time since its start, which no one sets and which includes suspend. With the next
// start of the system all locks have ended, so nothing is synced to the disk. Fencing tokens grow
// beyond that: they begin with the clock in µs. Only if that was set back, and the folder is lost
// or damaged by a power failure, may they shrink.
//
// To delete what is in the folder is to lose the locks. Processes that have it open exclude each other
// again, and those that are started later, and wake each other again within two minutes; but if one of these
// has made a new clock before, the requests of the others fail until they are started again. So do those of
// all processes that had a folder open which was itself deleted. One that is renamed stays that of the
// processes which have it open, and those that are started later exclude them no more.
//
// # Files
//
// The folder must belong to the user alone (mode 700). It has a file for each name, and a named
// pipe for each store, by which processes wake each other. While something waits in a process, it
// keeps a file open for each process that has the lock or waits for it; without a free descriptor it
// asks again each second. What has ended is removed within a
// minute or two, by any store that is in use. Processes in containers share a folder if they run on
// one kernel, as one user, in one time namespace, with one boot_id: those of systemd-nspawn and LXC have
// one of their own, and are refused while others use the folder, unless the host's is bound into them. While
// none does, one starts as after a start of the system: also what was kept or left to its TTL has ended for it.
//
// A pair of Lock and Unlock costs the store as much as five bare pairs of flock(2) with open and
// close, on a disk as in memory, since nothing is synced.
package filestore

// Where a change goes, with its tests and the planted bugs to run after it (make planted
// PLANTED=22). A name without a folder is of this package. TestPlacesOfChanges in
// cmd/leasewheel compares the names with the code.
//
// Requests: store.go, subscription.go, lock/internal/machine/requests.go; what they mean:
// lock/internal/machine/doc.go; those for one name: lock/internal/machine/turns.go.
// Tests: suite_test.go, suite_real_test.go, store_test.go. Planted: 315, 316, 596, 630.
//
// What is stored: record.go, lock/internal/machine/code.go; how a write survives: file.go.
// Tests: store_test.go, killed_test.go, lock/internal/machine/property_test.go. Planted: 227, 228, 380, 506.
//
// Messages, and the end of a process: peers.go, subscription.go Store.ended(),
// lock/internal/machine/owners.go.
// Tests: store_test.go, killed_test.go. Planted: 229, 303, 304, 359, 382, 383, 475, 479, 577, 582, 631, 633, 675.
//
// The folder, the time, what is removed: folder.go, clock.go, sweep.go.
// Tests: store_test.go. Planted: 196, 230, 297, 314, 388, 507, 530, 561, 570, 595, 632.
//
// The folder of the command: cmd/leasewheel/internal/connect/folder.go.
// Tests: cmd/leasewheel/folder_linux_test.go.
