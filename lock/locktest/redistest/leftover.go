package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// leftovers finds what the tests of a package leave behind: files in the folder for
// temporary ones, which it makes for them, and sockets.
type leftovers struct {
	folder  string          // for temporary files; empty if it could not be made
	sockets map[string]bool // that were open before the tests
}

// watchLeftovers must be called before the tests.
func watchLeftovers() leftovers {
	l := leftovers{sockets: openSockets()}
	parent := os.TempDir()
	if strings.ContainsAny(parent, " \t'") { // lines of shell and LD_PRELOAD have the paths of files
		parent = "/tmp"
	}
	folder, err := os.MkdirTemp(parent, "test-") // short, since sockets' paths have 108 bytes at most
	if err != nil {
		return l // the tests will say so
	}
	l.folder = folder
	name := "TMPDIR"
	if runtime.GOOS == "windows" {
		name = "TMP"
	}
	_ = os.Setenv(name, folder) // the name is valid
	return l
}

// find returns what is left after the limit, a line each, and removes the files. Sockets are
// closed after a test by goroutines that it does not wait for.
func (l leftovers) find(limit time.Duration) (left []string) {
	if l.folder != "" {
		entries, err := os.ReadDir(l.folder)
		if err != nil {
			left = append(left, err.Error())
		}
		for _, entry := range entries {
			left = append(left, "file "+filepath.Join(l.folder, entry.Name()))
		}
		_ = os.RemoveAll(l.folder) // the files are reported
	}
	var sockets []string
	_ = eventually(limit, func() error {
		sockets = nil
		for socket := range openSockets() {
			if !l.sockets[socket] {
				sockets = append(sockets, socket)
			}
		}
		if len(sockets) > 0 {
			return fmt.Errorf("open: %v", sockets)
		}
		return nil
	}) // sockets has them
	return append(left, sockets...)
}

// openSockets returns the sockets of this process, on Linux.
func openSockets() map[string]bool {
	sockets := make(map[string]bool)
	descriptors, _ := filepath.Glob("/proc/self/fd/*") // the pattern is valid
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && strings.HasPrefix(target, "socket:") {
			sockets[target] = true
		}
	}
	return sockets
}
