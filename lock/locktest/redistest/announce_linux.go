package redistest

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// openGoStderr opens the standard error of our parent if that is the go command. It
// accepts only a terminal or a pipe: a regular file would be opened with a write position
// of its own, and one of the two would overwrite the other.
func openGoStderr() (*os.File, error) {
	proc := fmt.Sprintf("/proc/%d", os.Getppid())
	name, err := os.ReadFile(proc + "/comm")
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(name)) != "go" {
		return nil, errors.New("redistest: not started by the go command")
	}
	info, err := os.Stat(proc + "/fd/2")
	if err != nil {
		return nil, err
	}
	if info.Mode()&(os.ModeCharDevice|os.ModeNamedPipe) == 0 {
		return nil, errors.New("redistest: standard error is neither a terminal nor a pipe")
	}
	return os.OpenFile(proc+"/fd/2", os.O_WRONLY|os.O_APPEND, 0)
}
