package pgtest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of times in /proc/PID/stat.
const tick = 10 * time.Millisecond

// CPU returns the processor time of the server's processes, of those that have ended too.
func (s *Server) CPU() (total time.Duration) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// From the state on: state, parent, … utime, stime, and those of ended children.
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		times := 0
		switch strconv.Itoa(s.PID()) {
		case filepath.Base(filepath.Dir(path)):
			times = 4
		case fields[1]:
			times = 2
		}
		for _, text := range fields[11 : 11+times] {
			n, _ := strconv.Atoi(text)
			total += time.Duration(n) * tick
		}
	}
	return total
}
