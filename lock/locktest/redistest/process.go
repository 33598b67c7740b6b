package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one running redis-server.
type process struct {
	*os.Process
	exited chan struct{}    // closed once it has been waited for
	state  *os.ProcessState // how it ended; valid once exited is closed
	killed bool             // kill was called: its end is no surprise
}

// startProcess starts command on an OS thread that lives as long as the process. The
// kernel kills a child when the thread that started it ends, and Go ends idle threads at
// any time.
func startProcess(command *exec.Cmd) (*process, error) {
	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		dieWithParent(command)
		err := command.Start()
		p.Process = command.Process
		started <- err
		if err != nil {
			return
		}
		_ = command.Wait() // its result is in ProcessState
		p.state = command.ProcessState
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// kill ends the process, even a stopped one, and waits until it is gone.
func (p *process) kill() {
	if !p.running() {
		return
	}
	p.killed = true
	_ = p.Kill() // fails only if it has ended meanwhile
	<-p.exited
}

// signal panics if the process has ended: a test that pauses a dead server would prove
// nothing.
func (p *process) signal(signal syscall.Signal) {
	if err := p.Signal(signal); err != nil {
		panic(fmt.Sprintf("redistest: %v: %v", signal, err))
	}
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}
