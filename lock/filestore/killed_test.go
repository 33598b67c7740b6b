//go:build linux

package filestore

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// contender is the environment variable with the folder in which a process of the test contends
// for locks, and suicidal that which has it kill itself in the middle of a write.
const (
	contender = "FILESTORE_CONTENDER"
	suicidal  = "FILESTORE_SUICIDAL"
)

// stuck bounds a wait for a lock. No TTL ends within the test: only the end of a process frees
// what it held.
const (
	stuck   = time.Minute
	longTTL = time.Hour
)

// contend takes and frees locks of each kind until the process is killed, or its input ends. It
// prints a word for each thing that is wrong, and for each round.
func contend(folder string) {
	s, err := linux()
	fatal(err)
	if os.Getenv(suicidal) != "" {
		s.pwrite = func(fd int, b []byte, at int64) (int, error) {
			if rand.N(30) == 0 {
				n, _ := syscall.Pwrite(fd, b[:rand.N(len(b)+1)], at)
				fatal(unix.Kill(unix.Getpid(), unix.SIGKILL))
				<-context.Background().Done()
				return n, nil
			}
			return syscall.Pwrite(fd, b, at)
		}
	}
	store, err := open(folder, s)
	fatal(err)
	names := []string{"mutex", "fair", "write", "permit"}
	witnesses := make(map[string]int) // opened last: of a process that has ended, the kernel closes them first
	for _, name := range names {
		fd, err := unix.Open(folder+"."+name, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
		fatal(err)
		witnesses[name] = fd
	}
	locker, err := lock.New(store, lock.Config{TTL: longTTL, RequestTimeout: stuck})
	fatal(err)
	end := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(end)
	}()
	handles := map[string]*lock.Mutex{"mutex": locker.Mutex("a"), "fair": locker.Fair("b"), "write": locker.ReadWrite("c").Write(), "permit": locker.Permits("d").One()}
	var work sync.WaitGroup
	for _, name := range names {
		work.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
				}
				lease, err := handles[name].MaxWait(stuck).Lock(context.Background())
				if err != nil {
					fmt.Println("stuck", name, err)
					return
				}
				witness(name, witnesses[name], lease.Token())
				if err := lease.Unlock(context.Background()); err != nil {
					fmt.Println("unlock", name, err)
				}
				fmt.Println("round", name)
			}
		})
	}
	work.Wait()
	_ = locker.Close()
	_ = store.Close()
}

// witness reports another holder, and a token that is not larger than the last one.
func witness(name string, fd int, token int64) {
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		fmt.Println("overlap", name, err)
	}
	var last [8]byte
	_, _ = unix.Pread(fd, last[:], 0)
	if previous := int64(binary.LittleEndian.Uint64(last[:])); token <= previous { //nolint:gosec // a token
		fmt.Println("token", name, token, "after", previous)
	}
	binary.LittleEndian.PutUint64(last[:], uint64(token)) //nolint:gosec // a token
	_, err := unix.Pwrite(fd, last[:], 0)
	fatal(err)
	fatal(unix.Flock(fd, unix.LOCK_UN))
}

func fatal(err error) {
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// process is one that contends. Its rounds are counted, and what is wrong is an error of t.
type process struct {
	*exec.Cmd
	stdin  io.Closer
	rounds atomic.Int64
	output sync.WaitGroup
}

func start(t *testing.T, folder string, env ...string) *process {
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(append(os.Environ(), contender+"="+folder), env...)
	p.Stderr = os.Stderr
	stdin, err := p.StdinPipe()
	require.NoError(t, err)
	p.stdin = stdin
	stdout, err := p.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.Start())
	p.output.Go(func() {
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			if p.rounds.Add(1); !strings.HasPrefix(lines.Text(), "round") {
				t.Errorf("a process: %s", lines.Text())
			}
		}
	})
	return p
}

// wait returns once the process has ended and its output is read.
func (p *process) wait() {
	p.output.Wait()
	_ = p.Wait()
}

// killMany kills processes that contend, half of them by themselves in the middle of a write,
// beside two that live.
func killMany(t *testing.T, kills int) {
	folder := t.TempDir() + "/locks"
	s, err := New(folder)
	require.NoError(t, err)
	created, err := s.Count(t.Context(), &driver.Count{Kind: driver.KindPermit, Name: "d", Op: driver.CountCreate, N: 1, Request: "create", Keep: time.Minute})
	require.NoError(t, err)
	require.True(t, created.Done)
	living := []*process{start(t, folder), start(t, folder)}
	var work sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(kills))
	for range 2 {
		work.Go(func() {
			for n := left.Add(-1); n >= 0 && !t.Failed(); n = left.Add(-1) {
				if n%2 == 0 {
					start(t, folder, suicidal+"=1").wait()
					continue
				}
				p := start(t, folder)
				for p.rounds.Load() == 0 && !t.Failed() {
					time.Sleep(100 * time.Microsecond)
				}
				time.Sleep(rand.N(2 * time.Millisecond))
				_ = p.Process.Kill()
				p.wait()
			}
		})
	}
	work.Wait()
	for _, p := range living {
		before, begin := p.rounds.Load(), time.Now()
		for p.rounds.Load() < before+100 && time.Since(begin) < stuck && !t.Failed() {
			time.Sleep(time.Millisecond)
		}
		assert.GreaterOrEqual(t, p.rounds.Load(), before+100, "rounds after the last kill")
		t.Logf("a process that lived has held locks %d times", p.rounds.Load())
		_ = p.stdin.Close()
		p.wait()
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		info, err := s.Inspect(t.Context(), name, driver.KindMutex)
		require.NoError(t, err)
		assert.Zero(t, info.HolderCount, name)
		assert.Zero(t, info.WaiterCount, name)
		if name == "d" {
			assert.EqualValues(t, 1, info.Count)
		}
	}
	require.NoError(t, s.Close())
}

// Processes that are killed lose nothing and keep no one waiting, whatever they were doing.
func TestKilledProcesses(t *testing.T) {
	t.Parallel()
	killMany(t, 20)
}
