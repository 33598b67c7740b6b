//go:build real && unix

package main

import "github.com/leasewheel/leasewheel/lock/driver"

// processRequests is the limit of the requests of processes that the tests start: the command's.
const processRequests = driver.DefaultRequestTimeout
