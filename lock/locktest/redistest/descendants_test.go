package redistest

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leaving stands for the tests of a package, which run a line of shell.
type leaving struct{ line string }

func (l leaving) Run() int {
	if l.line == "socket" {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		kept = listener
		return 0
	}
	c := exec.Command("sh", "-c", l.line)
	c.Stdout = os.Stdout
	if err := c.Run(); err != nil {
		panic(err)
	}
	return 0
}

var kept net.Listener // is never closed

// startLeaving runs in the processes of TestRunFailsIfSomethingIsLeft.
func startLeaving(line string) {
	limit := processesEnd
	if strings.Contains(line, "1000") || line == "socket" {
		limit = 0
	}
	os.Exit(run(leaving{line}, limit))
}

// A process that outlives the tests fails them, also an orphan in a session of its own, and
// is killed. One that is about to end does not. A file or a socket that is left fails them too.
func TestRunFailsIfSomethingIsLeft(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("descendants are not found on " + runtime.GOOS)
		return
	}
	for line, code := range map[string]int{
		"sleep 1000 >/dev/null 2>&1 & echo $!":                  1,
		"(setsid sleep 1000 >/dev/null 2>&1 & echo $!)":         1,
		"sh -c 'sleep 1000 >/dev/null 2>&1 & echo $!; :' | cat": 1,
		"sleep 0.1 >/dev/null 2>&1 & echo $!":                   0,
		"echo 0":                                                0,
		"touch $TMPDIR/left; rm $TMPDIR/left":                   0,
		"touch $TMPDIR/left":                                    1,
		"socket":                                                1,
	} {
		test := exec.Command(os.Args[0])
		test.Env = append(os.Environ(), "REDISTEST_LEAVE="+line)
		var report strings.Builder
		test.Stderr = &report
		pid, err := test.Output()
		if code == 0 {
			require.NoError(t, err, line)
			assert.Empty(t, report.String(), line)
			continue
		}
		var failed *exec.ExitError
		require.ErrorAs(t, err, &failed, line)
		assert.Equal(t, code, failed.ExitCode(), line)
		if !strings.Contains(line, "1000") {
			assert.Regexp(t, `redistest: the tests left:\n\t(file \S+/left|socket:\[\d+\])\n`, report.String())
			continue
		}
		assert.Contains(t, report.String(), "processes were left by the tests, and killed now:\n\t"+strings.TrimSpace(string(pid))+": ")
		number, err := strconv.Atoi(strings.TrimSpace(string(pid)))
		require.NoError(t, err)
		require.Eventually(t, func() bool { return !alive(number) }, patient, time.Millisecond)
	}
}
