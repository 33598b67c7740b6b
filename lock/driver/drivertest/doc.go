// Package drivertest is the conformance suite of [driver.Store], for authors of stores. It
// needs no server of any kind:
//
//	func TestStore(t *testing.T) {
//		drivertest.Run(t, drivertest.Suite{Backend: func(t testing.TB) drivertest.Backend { … }})
//	}
//
// The example is a whole store of mutexes, which passes the suite. A case's name is what the store
// is to do, and the comments of [driver.Store] and [driver.Hold] state it.
//
// Package locktest is for users of locks.
package drivertest
