package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// Info is what a store knows of one lock at one instant; see [driver.Info] for its fields.
// It may have changed by the time it is read.
type Info = driver.Info

// Holder is one owner that holds a lock, in an [Info]; see [driver.Holder].
type Holder = driver.Holder

// Waiter is one owner that waits for a lock, in an [Info]; see [driver.Waiter].
type Waiter = driver.Waiter

// Client describes the [Locker] that an owner belongs to, and its process, in a [Holder]
// or [Waiter]; see [driver.Client].
type Client = driver.Client

// MaxTold is how many holders, and how many waiters, an [Info] names.
const MaxTold = driver.MaxTold
