package run

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"golang.org/x/sys/unix"
)

// report is called with each report of a guard.
type report func()

func (r report) Write(b []byte) (int, error) {
	r()
	return len(b), nil
}

// leasewheel run may be gone as soon as it has a report. The guard ends a command that runs on. What
// a command leaves behind that has ended by itself runs on.
func TestGuardWhoseRunEndsWithAReport(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status unix.WaitStatus
		over   bool
	}{
		"the command has ended":   {unix.WaitStatus(0), true},
		"the command has stopped": {unix.WaitStatus(unix.SIGTSTP<<8 | 0x7f), false},
	} {
		t.Run(name, func(t *testing.T) {
			killed := false
			g := &guarding{in: json.NewDecoder(strings.NewReader("")), child: newChild(4711)}
			g.order.Action = lossKill
			g.child.strays = func() []int { return nil }
			g.child.kill = func(_ int, sig syscall.Signal) error {
				killed = sig == unix.SIGKILL
				runtime.Goexit() // it would be repeated until the process ends
				return nil
			}
			g.out = json.NewEncoder(report(func() {
				listened := make(chan struct{})
				go func() {
					defer close(listened)
					g.listen()
				}()
				<-listened
			}))
			assert.Equal(t, test.over, g.changed(test.status))
			assert.Equal(t, !test.over, killed)
		})
	}
}

// The error of a guard is none of the command, whose interpreter would be missing by the same code.
func TestGuardWithoutProc(t *testing.T) {
	t.Parallel()
	_, err := new(guard).start(filepath.Join(t.TempDir(), "exe"), childSpec{path: "/bin/true", argv: []string{"true"}})
	assert.EqualError(t, err, "its guard: /proc is not mounted")
	assert.NotErrorIs(t, err, fs.ErrNotExist)
}
