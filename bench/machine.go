package bench

import (
	"bufio"
	"os"
	"runtime"
	"strings"
)

// A Machine is where a measurement ran.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	CPU   string `json:"cpu"`   // the processor's name, empty if the system does not report it
	Cores int    `json:"cores"` // that the process may use
	Procs int    `json:"gomaxprocs"`
	Go    string `json:"go"` // version of the runtime
}

// ReadMachine describes this process's machine.
func ReadMachine() Machine {
	return Machine{
		OS:    runtime.GOOS,
		Arch:  runtime.GOARCH,
		CPU:   processor(),
		Cores: runtime.NumCPU(),
		Procs: runtime.GOMAXPROCS(0),
		Go:    runtime.Version(),
	}
}

// processor reads the processor's name from /proc/cpuinfo.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	return modelName(bufio.NewScanner(f))
}

func modelName(lines *bufio.Scanner) string {
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
