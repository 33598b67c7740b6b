package redisstore_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// A job is what a process that a test starts does on the test's server.
type job func(ctx context.Context, locker *lock.Locker, client redis.UniversalClient, n int) error

// jobs are the jobs by name.
var jobs = map[string]job{
	"wait fairly": waitFairly,
}

// The environment variables of a process that a test starts.
const (
	processJob    = "LEASEWHEEL_PROCESS_JOB"
	processServer = "LEASEWHEEL_PROCESS_SERVER"
)

// workAsProcess does the job of this process, which a test has started, and exits. In the
// process of the tests it returns. It ends early when standard input does.
func workAsProcess() {
	work, started := jobs[os.Getenv(processJob)]
	if !started {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := workOn(os.Getenv(processServer), os.Args[1], work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// workOn does a job on the server at a URL.
func workOn(url, number string, work job) error {
	n, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	store, err := redisstore.Open(url, redisstore.Config{})
	if err != nil {
		return err
	}
	client, err := redisstore.Dial(url, redisstore.ClientConfig{})
	if err != nil {
		return err
	}
	locker, err := lock.New(store, lock.Config{TTL: 3 * time.Second, Poll: time.Hour, RetryFor: time.Minute})
	if err != nil {
		return err
	}
	return work(context.Background(), locker, client, n)
}

// startProcess starts a process that does a job on the server at a URL. It ends with t.
func startProcess(t *testing.T, job, url string, n int) *os.Process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := exec.Command(self, strconv.Itoa(n))
	p.Env = append(os.Environ(), processJob+"="+job, processServer+"="+url)
	stdin, err := p.StdinPipe()
	require.NoError(t, err)
	stderr, err := p.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	var copied sync.WaitGroup
	copied.Go(func() {
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			t.Logf("process %d: %s", p.Process.Pid, lines.Text())
		}
	})
	t.Cleanup(func() {
		_ = stdin.Close()
		copied.Wait()
		_ = p.Wait()
	})
	return p.Process
}
