package locktest

import "fmt"

// TB is the part of [testing.TB] that [New], [StartMemory], [Start] and the methods of [Memory] and [Server] need.
type TB interface {
	Helper()
	Cleanup(f func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Scope is a [TB] outside of tests: for examples, and for programs in development that have
// no server. Its zero value is ready to use, by one goroutine. It panics where a test would
// fail.
type Scope struct{ cleanups []func() }

// End ends what was started with the scope, the latest first.
func (s *Scope) End() {
	for len(s.cleanups) > 0 {
		last := len(s.cleanups) - 1
		f := s.cleanups[last]
		s.cleanups = s.cleanups[:last]
		f()
	}
}

// Helper does nothing.
func (s *Scope) Helper() {}

// Cleanup has End call f.
func (s *Scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

// Errorf panics.
func (s *Scope) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Fatalf panics.
func (s *Scope) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
