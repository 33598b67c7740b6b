package lock

import "github.com/leasewheel/leasewheel/lock/driver"

// Info is the state of one lock at one instant; see [driver.Info].
type Info = driver.Info

// Holder is one owner that holds a lock; see [driver.Holder].
type Holder = driver.Holder

// Waiter is one owner that waits for a lock; see [driver.Waiter].
type Waiter = driver.Waiter

// Client is the [Locker] of an owner, and its process; see [driver.Client].
type Client = driver.Client
