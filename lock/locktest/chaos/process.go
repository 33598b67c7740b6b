//go:build linux

package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// workerEnv marks a worker process among the processes of the test binary.
const workerEnv = "LEASEWHEEL_CHAOS_WORKER"

// process is a worker process.
type process struct {
	reports
	place int

	command *exec.Cmd
	stdin   io.WriteCloser
	stderr  bytes.Buffer
	exited  chan struct{} // closed once it has ended and all of its output was read

	stops int // guarded by mu
}

// spawn starts a process that executes a plan.
func spawn(number, place int, p workerPlan) (*process, error) {
	proc := &process{reports: newReports(number), place: place, exited: make(chan struct{})}
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), workerEnv+"=1")
	c.Stderr = &proc.stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	proc.command = c
	stdout, err := c.StdoutPipe()
	if err == nil {
		proc.stdin, err = c.StdinPipe()
	}
	if err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // the kernel kills the process when this thread ends
		err := c.Start()
		started <- err
		if err != nil {
			return
		}
		proc.read(stdout)
		_ = c.Wait()
		close(proc.exited)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	line, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	_, err = proc.stdin.Write(append(line, '\n'))
	return proc, err
}

func (p *process) read(from io.Reader) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // cut short by the process's end
		}
		p.add(e)
	}
	_ = lines.Err() // the end of the process may cut the reading short
}

func (p *process) send(order string) {
	_, _ = fmt.Fprintln(p.stdin, order) // a write to a dead process may fail
}

func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stops++; p.stops == 1 && !p.isDead {
		_ = p.command.Process.Signal(syscall.SIGSTOP)
	}
}

func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stops--; p.stops == 0 && !p.isDead {
		_ = p.command.Process.Signal(syscall.SIGCONT)
	}
}

// kill ends the process, which may be stopped.
func (p *process) kill() {
	p.mu.Lock()
	if p.isDead {
		p.mu.Unlock()
		return
	}
	p.isDead = true
	p.mu.Unlock()
	_ = p.command.Process.Kill()
	<-p.exited
	p.mu.Lock()
	p.died = now()
	p.mu.Unlock()
}
