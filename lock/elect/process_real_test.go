//go:build real && unix

package elect_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/elect"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// candidateServer is the environment variable that makes a process of this test a
// candidate on the server at that URL.
const candidateServer = "LEASEWHEEL_CANDIDATE_SERVER"

// candidateHangs is the environment variable that makes a candidate ignore its context, with
// this grace of FailStop.
const candidateHangs = "LEASEWHEEL_CANDIDATE_HANGS"

const processTTL = 8 * time.Second

// standAsProcess stands for election until SIGTERM, if a test has started this process for
// that, and exits. It ends early when standard input does.
func standAsProcess() {
	url := os.Getenv(candidateServer)
	if url == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	if err := stand(url); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// stand prints "leads TERM" when it is elected, and "stops TERM CAUSE" afterwards.
func stand(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	store, err := redisstore.Open(url, redisstore.Config{})
	if err != nil {
		return err
	}
	locker, err := lock.New(store, lock.Config{TTL: processTTL})
	if err != nil {
		return err
	}
	election := elect.New(locker, "leader", lock.Options{})
	grace, hangs := os.LookupEnv(candidateHangs)
	if hangs {
		after, err := time.ParseDuration(grace)
		if err != nil {
			return err
		}
		election = election.FailStop(after)
	}
	fmt.Println("stands")
	err = election.Run(ctx, func(ctx context.Context, term int64) error {
		fmt.Println("leads", term)
		<-ctx.Done()
		if hangs {
			fmt.Println("hangs", term)
			select {}
		}
		cause := "told to"
		if errors.Is(context.Cause(ctx), lock.ErrLost) {
			cause = "lost"
		}
		fmt.Println("stops", term, cause)
		return ctx.Err()
	})
	if ctx.Err() == nil {
		return err
	}
	return locker.Shutdown(context.Background())
}

// standing is a process that stands for election.
type standing struct {
	*exec.Cmd
	t      *testing.T
	lines  chan string
	errors bytes.Buffer // to be read after Wait
}

func startCandidate(t *testing.T, url string, environment ...string) *standing {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &standing{Cmd: exec.Command(self), t: t, lines: make(chan string, 100)}
	p.Env = append(append(os.Environ(), candidateServer+"="+url), environment...)
	p.Stderr = io.MultiWriter(os.Stderr, &p.errors)
	stdin, err := p.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.lines <- lines.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		<-read
		_ = p.Wait()
	})
	require.Equal(t, "stands", p.line())
	return p
}

// line returns the next line that the process prints, and "" at their end.
func (p *standing) line() string {
	p.t.Helper()
	select {
	case line := <-p.lines:
		return line
	case <-time.After(time.Minute):
		require.Fail(p.t, "the process prints nothing")
		return ""
	}
}

// leads waits until the process leads, and returns its term.
func (p *standing) leads() int64 {
	p.t.Helper()
	text, found := strings.CutPrefix(p.line(), "leads ")
	require.True(p.t, found, "%q", text)
	term, err := strconv.ParseInt(text, 10, 64)
	require.NoError(p.t, err)
	return term
}

// A leader that exits on SIGTERM is replaced at once; one that is killed, or frozen, within
// its TTL. A frozen one learns of its loss when it continues, and stands again.
func TestProcessesElectALeader(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{})
	url := server.URL()
	first := startCandidate(t, url)
	term := first.leads()
	second := startCandidate(t, url)
	later := func(next int64) {
		t.Helper()
		require.Greater(t, next, term, "broken promise: a later term is not larger")
		term = next
	}

	require.NoError(t, first.Process.Signal(syscall.SIGSTOP))
	frozen := term
	later(second.leads())
	require.NoError(t, first.Process.Signal(syscall.SIGCONT))
	assert.Equal(t, fmt.Sprintf("stops %d lost", frozen), first.line())

	require.NoError(t, second.Process.Kill())
	later(first.leads())

	third := startCandidate(t, url)
	last := term
	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	later(third.leads())
	assert.Equal(t, fmt.Sprintf("stops %d told to", last), first.line())
	assert.Empty(t, first.line(), "it has exited")
}

// FailStop ends the process of a leader that hangs after its loss, with the reason and code 76,
// and not before. The next one leads meanwhile.
func TestFailStopEndsTheProcess(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]string{"AtOnce": "0s", "WithAGrace": "3s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			hanging := startCandidate(t, server.URL(), candidateHangs+"="+grace)
			term := hanging.leads()
			next := startCandidate(t, server.URL())
			store, err := redisstore.Open(server.URL(), redisstore.Config{})
			require.NoError(t, err)
			defer store.Close()
			_, err = store.ForceRelease(t.Context(), "leader")
			require.NoError(t, err)
			require.Greater(t, next.leads(), term, "broken promise: a later term is not larger")
			if last := hanging.line(); last != "" { // with a grace of 0 it may end before it prints
				require.Equal(t, fmt.Sprint("hangs ", term), last)
				require.Empty(t, hanging.line(), "it has exited")
			}
			var exit *exec.ExitError
			require.ErrorAs(t, hanging.Wait(), &exit)
			assert.Equal(t, 76, exit.ExitCode())
			assert.Equal(t, 1, strings.Count(hanging.errors.String(), "\n"), "%s", &hanging.errors)
			assert.Contains(t, hanging.errors.String(), fmt.Sprintf(`elect: the leadership of "leader", term %d, is lost, and its function has not returned within %s: Election.FailStop ends the process:`, term, grace))
		})
	}
}
