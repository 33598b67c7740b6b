package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// tick is the unit of times in /proc/PID/stat.
const tick = 10 * time.Millisecond

// processes calls visit with each of the server's processes, and its /proc/PID/stat from the state
// on: state, parent, … utime, stime, and those of ended children.
func (s *Server) processes(visit func(pid int, stat []string)) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if pid == s.PID() || fields[1] == strconv.Itoa(s.PID()) {
			visit(pid, fields)
		}
	}
}

// CPU returns the processor time of the server's processes, of those that have ended too.
func (s *Server) CPU() (total time.Duration) {
	s.processes(func(pid int, stat []string) {
		times := 2
		if pid == s.PID() {
			times = 4
		}
		for _, text := range stat[11 : 11+times] {
			n, _ := strconv.Atoi(text)
			total += time.Duration(n) * tick
		}
	})
	return total
}

// SignalAll sends a signal to all of the server's processes.
func (s *Server) SignalAll(signal syscall.Signal) {
	s.Signal(signal) // first, so that it starts no further ones
	s.processes(func(pid int, _ []string) { _ = syscall.Kill(pid, signal) })
}
