//go:build !real && unix

package main

import "github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"

// processRequests is the limit of the requests of processes that the tests start: only a hang
// exceeds it, where a busy machine may exceed the command's, which is a second.
const processRequests = commandtest.Patience
