// Package testmain runs the tests of a package that starts processes or goroutines, and
// checks that they end.
//
//	func TestMain(m *testing.M) { testmain.Run(m) }
//
// It is apart from package redistest, which the command uses to start servers, so that
// goleak is no part of the command.
package testmain

import (
	"os"
	"runtime/debug"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// Run runs a package's tests, checks that they left no process (on Linux) and, with goleak,
// no goroutine, and prints in one line how many were skipped for lack of a redis-server. It
// does not return.
// go-redis's own logging is off meanwhile: the tests break connections on purpose.
func Run(m goleak.TestingM, options ...goleak.Option) {
	redis.SetLogger(&logging.VoidLogger{})
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // of the processor time of tests, collecting takes a tenth at 100, and 6 % more at 200 than here
	}
	// A pool whose server refuses connections dials once a second, and ends up to a second
	// after its client was closed: later than goleak waits.
	dialing := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	goleak.VerifyTestMain(tests{m}, append(options, dialing)...)
}

// tests is a TestingM whose skipped tests are reported.
type tests struct{ goleak.TestingM }

func (t tests) Run() int { return redistest.Run(t.TestingM) }
