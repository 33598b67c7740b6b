package redistest

// TB is the part of [testing.TB] that this package uses. It is an interface of
// its own so that the command can start servers without linking package
// testing, and so that the harness's own failures can be tested.
type TB interface {
	Helper()
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}
