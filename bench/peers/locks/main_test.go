package locks

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/lock/locktest/testmain"
)

// actAsContenders, set in the environment, makes the test binary a process of contenders.
const actAsContenders = "LEASEWHEEL_LOCKS_ACT_AS_CONTENDERS"

func TestMain(m *testing.M) {
	if os.Getenv(actAsContenders) != "" {
		if err := contention.Serve(os.Stdin, os.Stdout, openSpec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testmain.Run(m)
}

// command is such a process.
func command() *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), actAsContenders+"=1", "GORACE=atexit_sleep_ms=0")
	return cmd
}
