package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// Info is what a store knows of one lock at one instant.
type Info = driver.Info

// Holder is one owner that holds a lock, in an [Info].
type Holder = driver.Holder

// Waiter is one owner that waits for a lock, in an [Info].
type Waiter = driver.Waiter

// Client describes the process that an owner belongs to, in a [Holder] or [Waiter].
type Client = driver.Client

// MaxTold is how many holders, and how many waiters, an [Info] names.
const MaxTold = driver.MaxTold
