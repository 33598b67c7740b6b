//go:build real

package coexist

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// workerVariable makes this test's program a worker: "<library> <role>".
const workerVariable = "COEXIST_WORKER"

// addressVariable is the URL of its server.
const addressVariable = "COEXIST_REDIS"

// The keys of a test.
const (
	lockName = "orders:42"
	inside   = "inside"   // string: the worker that holds the lock
	dead     = "dead"     // set of the workers that were killed there
	overlaps = "overlaps" // list of overlapping holds
	turns    = "turns"    // hash of the grants of each
)

// work runs a worker until its standard input ends: it acquires the lock again and again
// ("turns"), or once and keeps it ("hold").
func work() error {
	library, role, _ := strings.Cut(os.Getenv(workerVariable), " ")
	options, err := redis.ParseURL(os.Getenv(addressVariable))
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer client.Close()
	take, end, err := newLocking(library, client, lockName)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	// redislock needs a limit for the wait.
	ctx, cancelWait := context.WithTimeout(ctx, 5*time.Minute)
	defer cancelWait()
	if role == "hold" {
		if _, err := take(ctx); err != nil {
			return err
		}
		fmt.Println("held")
		<-ctx.Done()
		return nil
	}
	w := worker{name: fmt.Sprintf("%s of process %d", library, os.Getpid()), library: library, client: client, take: take}
	for ctx.Err() == nil {
		if err := w.turn(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// worker acquires and releases the lock, and detects overlapping holds.
type worker struct {
	name, library string
	client        *redis.Client
	take          locking
}

func (w *worker) turn(ctx context.Context) error {
	unlock, err := w.take(ctx)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	if err := w.enter(ctx); err != nil {
		return err
	}
	time.Sleep(2*time.Millisecond + rand.N(4*time.Millisecond))
	if err := w.leave(ctx); err != nil {
		return err
	}
	if err := unlock(ctx); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	time.Sleep(rand.N(2 * time.Millisecond))
	return nil
}

var (
	enterScript = redis.NewScript(`
		local before = redis.call('getset', KEYS[1], ARGV[1])
		if before and redis.call('sismember', KEYS[2], before) == 0 then
			redis.call('rpush', KEYS[3], ARGV[1] .. ' came while at work was ' .. before)
		end
		return redis.call('hincrby', KEYS[4], ARGV[2], 1)`)
	leaveScript = redis.NewScript(`
		local now = redis.call('get', KEYS[1])
		if now ~= ARGV[1] then
			redis.call('rpush', KEYS[3], ARGV[1] .. ' left while at work was ' .. tostring(now))
		end
		return redis.call('del', KEYS[1])`)
)

func (w *worker) enter(ctx context.Context) error {
	return enterScript.Run(ctx, w.client, []string{inside, dead, overlaps, turns}, w.name, w.library).Err()
}

func (w *worker) leave(ctx context.Context) error {
	return leaveScript.Run(ctx, w.client, []string{inside, dead, overlaps, turns}, w.name).Err()
}

// process is the process of a worker.
type process struct {
	*exec.Cmd
	name   string
	stdin  io.Closer
	stdout *bufio.Scanner
	stderr strings.Builder
	killed bool
	wait   func() error
}

// start starts a worker. It ends with t, and must exit without an error.
func start(t *testing.T, url, library, role string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(program)}
	p.Env = append(os.Environ(), workerVariable+"="+library+" "+role, addressVariable+"="+url)
	p.Stderr = &p.stderr
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.stdin, p.stdout, p.wait = stdin, bufio.NewScanner(stdout), sync.OnceValue(p.Wait)
	p.name = fmt.Sprintf("%s of process %d", library, p.Process.Pid)
	t.Cleanup(func() { p.stop(t) })
	return p
}

// stop ends the worker after its current hold.
func (p *process) stop(t *testing.T) {
	t.Helper()
	_ = p.stdin.Close()
	if err := p.wait(); err != nil && !p.killed {
		t.Errorf("%s: %v: %s", p.name, err, p.stderr.String())
	}
}

// kill ends the worker at once.
func (p *process) kill() {
	p.killed = true
	_ = p.Process.Kill()
	_ = p.wait()
}
