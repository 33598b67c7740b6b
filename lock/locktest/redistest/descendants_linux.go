package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant that loses its own, so
// that leftProcesses finds it.
func adoptOrphans() {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) //nolint:errcheck // Linux has it since 3.4
}

// leftProcesses returns the command lines of the descendants that are alive after the
// limit, and kills them. It waits for every child, so nothing else may do so meanwhile.
func leftProcesses(limit time.Duration) (left []string) {
	killed := map[int]bool{}
	for deadline := time.Now().Add(limit); reap(); time.Sleep(time.Millisecond) {
		if time.Now().Before(deadline) {
			continue
		}
		pids := children()
		if len(pids) == 0 { // /proc has no such list, or the last one has just ended
			break
		}
		for _, pid := range pids {
			if killed[pid] {
				continue
			}
			killed[pid] = true
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
			left = append(left, fmt.Sprintf("%d: %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
			unix.Kill(pid, unix.SIGKILL) //nolint:errcheck // it may have ended since
		}
	}
	return left
}

// reap waits for the children that have ended, and reports whether others live.
func reap() bool {
	for {
		switch pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); {
		case errors.Is(err, unix.EINTR):
		case err != nil: // ECHILD: there is none
			return false
		case pid == 0:
			return true
		}
	}
}

// children returns the process ids of the children.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is valid
	for _, list := range lists {
		text, _ := os.ReadFile(list) // the thread may have ended
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
