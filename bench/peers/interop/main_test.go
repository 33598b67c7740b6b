//go:build real

package interop

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

var (
	versions = flag.String("versions", "newest", "which versions of Redisson to run: newest, all, or one of them")
	soakFor  = flag.Duration("soak", 3*time.Second, "how long the soaks last")
	recordTo = flag.String("record", "", "the file of results that is written anew")
)

// long reports whether to run tests that take minutes: -versions is not newest.
func long() bool { return *versions != "newest" }

// TestMain runs a driver in a process that was started as one.
func TestMain(m *testing.M) {
	if os.Getenv(driverVariable) != "" {
		serve(os.Stdin, os.Stdout)
		return
	}
	redistest.Parallel(6)
	testmain.Run(closing{m})
}

// closing ends the shared drivers and writes the results once the tests have run.
type closing struct{ *testing.M }

func (m closing) Run() int {
	code := m.M.Run()
	closeShared()
	if *recordTo != "" {
		if err := results.write(*recordTo); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}
