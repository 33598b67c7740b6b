// Package drivertest is the conformance suite of [driver.Store], for authors of stores. It
// needs no server of any kind:
//
//	func TestStore(t *testing.T) {
//		drivertest.Run(t, drivertest.Suite{Backend: func(t testing.TB) drivertest.Backend { … }})
//	}
//
// Package locktest is for users of locks.
package drivertest
