//go:build unix

package redistest

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// alive reports whether a process exists that is more than a zombie. An orphan's parent
// reaps it at a time of its own.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return runtime.GOOS != "linux"
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}
