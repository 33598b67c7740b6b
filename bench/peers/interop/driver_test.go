//go:build real

package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patience bounds the wait for a reply, or for a condition. Only a hang reaches it: the longest wait,
// for a poller that backs off to 128 ms to be met in a window of 30 ms each ten seconds, ends by
// chance, with a mean of half a minute, and one of 1,000,000 such waits lasts longer.
const patience = 8 * time.Minute

// driver is a running program that drives a client library.
type driver struct {
	name    string // the library and its version
	command *exec.Cmd
	stdin   io.WriteCloser
	stderr  tail
	ended   chan struct{} // closed once standard output has ended

	mu      sync.Mutex // guards what follows, and writes to stdin
	replies map[int]chan reply
	last    int
}

type reply struct {
	text string
	err  error
	at   time.Time
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text string
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text += string(p)
	t.text = t.text[max(0, len(t.text)-4096):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.text
}

// startDriver starts a program that drives the library called name.
func startDriver(name string, command *exec.Cmd) (*driver, error) {
	d := &driver{name: name, command: command, ended: make(chan struct{}), replies: make(map[int]chan reply)}
	command.Stderr = &d.stderr
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if d.stdin, err = command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	go d.read(stdout)
	return d, nil
}

// read delivers replies until the program ends.
func (d *driver) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		how, text, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(id)
		if err != nil {
			continue // a library that writes to standard output
		}
		r := reply{at: time.Now()}
		r.text, err = url.QueryUnescape(text)
		if err != nil || how != "ok" {
			r.err = fmt.Errorf("%s: %w", d.name, errors.New(r.text))
		}
		d.mu.Lock()
		c := d.replies[n]
		delete(d.replies, n)
		d.mu.Unlock()
		if c != nil {
			c <- r
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for n, c := range d.replies {
		c <- reply{err: fmt.Errorf("%s has ended: %s", d.name, d.stderr.String()), at: time.Now()}
		delete(d.replies, n)
	}
	close(d.ended)
}

// request sends a request. The reply comes on the channel.
func (d *driver) request(thread, verb string, args ...any) <-chan reply {
	c := make(chan reply, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.ended:
		c <- reply{err: fmt.Errorf("%s has ended: %s", d.name, d.stderr.String()), at: time.Now()}
		return c
	default:
	}
	d.last++
	d.replies[d.last] = c
	words := []string{strconv.Itoa(d.last), url.QueryEscape(thread), verb}
	for _, arg := range args {
		words = append(words, url.QueryEscape(fmt.Sprint(arg)))
	}
	if _, err := io.WriteString(d.stdin, strings.Join(words, " ")+"\n"); err != nil {
		delete(d.replies, d.last)
		c <- reply{err: fmt.Errorf("%s: %w: %s", d.name, err, d.stderr.String()), at: time.Now()}
	}
	return c
}

// stop ends the program after all sent requests.
func (d *driver) stop() {
	_ = d.stdin.Close()
	select {
	case <-d.ended:
	case <-time.After(5 * time.Second):
	}
	d.kill()
}

// kill ends the program at once, as SIGKILL does.
func (d *driver) kill() {
	_ = d.command.Process.Kill()
	<-d.ended
	_ = d.command.Wait()
}

// client is one client of a library; in Redisson and leasewheel it has one id.
type client struct {
	*driver
	t  *testing.T
	id string

	scope string // of the names of its threads
}

var clientNumber atomic.Int64

// open opens a client of d for t.
func open(t *testing.T, d *driver, address string, options ...string) *client {
	t.Helper()
	c := &client{driver: d, t: t, id: fmt.Sprintf("c%d", clientNumber.Add(1))}
	args := []any{c.id, address}
	for _, option := range options {
		args = append(args, option)
	}
	if r := await(t, d.request(c.id, "open", args...)); r.err != nil {
		t.Fatalf("%v", r.err)
	}
	t.Cleanup(func() {
		select {
		case <-d.request(c.id+" end", "close", c.id):
		case <-time.After(patience):
			t.Errorf("%s does not close", d.name)
		}
	})
	return c
}

func await(t *testing.T, c <-chan reply) reply {
	t.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(patience):
		t.Fatal("no reply")
		return reply{}
	}
}

// begin sends a request of one thread of the client.
func (c *client) begin(thread, verb string, args ...any) <-chan reply {
	return c.request(c.id+c.scope+" "+thread, verb, append([]any{c.id}, args...)...)
}

// do sends a request and returns its result. An error fails the test.
func (c *client) do(thread, verb string, args ...any) string {
	c.t.Helper()
	text, err := c.try(thread, verb, args...)
	if err != nil {
		c.t.Fatalf("%s %v: %v", verb, args, err)
	}
	return text
}

// try sends a request and returns its result.
func (c *client) try(thread, verb string, args ...any) (string, error) {
	c.t.Helper()
	r := await(c.t, c.begin(thread, verb, args...))
	return r.text, r.err
}

// The durations of a request to lock, in ms.
const (
	forever = -1 // a wait
	renewed = -1 // a lease that the watchdog renews
	never   = 0  // no wait
)
