package redistest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// skipped counts the tests that Need has skipped in this process.
var skipped atomic.Int64

// Need skips t if there is no redis-server on this machine, and counts it for the line
// that [Run] prints. With REQUIRE_REDIS=1 or CI=true it fails t instead. An unusable
// redis-server always fails t.
func Need(t TB) {
	t.Helper()
	_, err := Find()
	need(t, err, required())
}

func need(t TB, err error, required bool) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, errNoServer) && !required:
		skipped.Add(1)
		t.Skipf("%v", err)
	default:
		t.Fatalf("%v", err)
	}
}

// required reports whether a missing server is a failure.
func required() bool {
	return os.Getenv("REQUIRE_REDIS") == "1" || os.Getenv("CI") == "true"
}

// processesEnd is how long the processes that tests have started, and the tests' sockets, may
// take to end after the last test. A process ends within milliseconds of its signal.
const processesEnd = time.Minute

// Run runs the tests of m, prints in one line how many were skipped for lack of a
// redis-server, and returns the exit code. It fails if the tests left a temporary file and,
// on Linux, if a process that they have started, one of its descendants, or a socket is left
// after a minute. Package testmain calls it.
func Run(m interface{ Run() int }) int { return run(m, processesEnd) }

func run(m interface{ Run() int }, limit time.Duration) int {
	adoptOrphans()
	leftovers := watchLeftovers()
	code := m.Run()
	if left := leftProcesses(limit); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "redistest: processes were left by the tests, and killed now:\n\t%s\n", strings.Join(left, "\n\t"))
		code = max(code, 1)
	}
	if left := leftovers.find(limit); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "redistest: the tests left:\n\t%s\n", strings.Join(left, "\n\t"))
		code = max(code, 1)
	}
	if n := skipped.Load(); n > 0 {
		announce(fmt.Sprintf("skipped\t%s\t%d tests, for want of a redis-server; `make test` installs one\n", packagePath(), n))
	}
	return code
}

// Parallel makes n tests run at a time rather than one for each processor, unless
// -parallel is set. It is for packages whose tests mostly wait, for leases to end and
// servers to fail over. It is called before the tests run.
func Parallel(n int) {
	flag.Parse()
	asked := false
	flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == "test.parallel" })
	if asked {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err) // it is not called from TestMain
	}
}

// packagePath returns the import path of the package under test.
func packagePath() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return strings.TrimSuffix(info.Path, ".test")
	}
	return os.Args[0]
}
