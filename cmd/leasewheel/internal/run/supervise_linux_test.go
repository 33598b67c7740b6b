package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// group is the process group of a command, without processes, in virtual time.
type group struct {
	*child
	deaf     bool // it ignores SIGTERM
	ended    bool
	first    time.Time // when it received a signal
	received []string  // signals, and how long after the first
	suspend  func()    // stops leasewheel itself
}

func newGroup(deaf bool) *group {
	g := &group{child: newChild(4711), deaf: deaf}
	g.guard.out = json.NewEncoder(io.Discard)
	g.kill, g.strays = g.take, func() []int { return nil }
	return g
}

// take receives a signal.
func (g *group) take(pid int, sig syscall.Signal) error {
	switch {
	case pid == os.Getpid() && sig == unix.SIGSTOP:
		g.suspend()
		return nil
	case pid != -g.pid:
		return fmt.Errorf("a signal to process %d", pid)
	case g.ended:
		return unix.ESRCH
	case sig == 0:
		return nil
	}
	if g.first.IsZero() {
		g.first = time.Now()
	}
	g.received = append(g.received, fmt.Sprint(unix.SignalName(sig), " +", time.Since(g.first)))
	switch {
	case sig == unix.SIGKILL, sig == unix.SIGTERM && !g.deaf:
		g.end(unix.WaitStatus(sig))
	case sig == unix.SIGTSTP:
		g.report(unix.WaitStatus(sig<<8 | 0x7f))
	}
	return nil
}

// end is the end of the command and of its group.
func (g *group) end(status unix.WaitStatus) {
	g.ended = true
	g.report(status)
}

// A command is ended when its lease is lost, when its lease runs out, before another client
// can hold the lock, and after its longest hold. Otherwise it ends by itself, in five minutes.
func TestSupervise(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	type server = locktest.Server
	lost := func(_ *testing.T, s *server) { s.Delete("job") }
	mute := func(_ *testing.T, s *server) { s.Freeze() }
	term := lossPolicy{action: lossTerm, grace: time.Second, margin: 100 * time.Millisecond}
	kill := lossPolicy{action: lossKill, margin: term.margin}
	ignore := lossPolicy{action: lossIgnore, margin: term.margin}
	for name, test := range map[string]struct {
		policy   lossPolicy
		deaf     bool
		maxHold  time.Duration
		after    time.Duration // something happens to the server
		happens  func(*testing.T, *server)
		received string // by the command
		reported string
		ending   error
	}{
		"renewed":                {policy: term, happens: func(*testing.T, *server) {}},
		"outage of half a TTL":   {policy: term, after: 6 * time.Second, happens: func(_ *testing.T, s *server) { s.Freeze(); time.AfterFunc(ttl/2, s.Thaw) }},
		"disconnected for a bit": {policy: term, after: 6 * time.Second, happens: func(_ *testing.T, s *server) { s.Disconnect(); time.AfterFunc(ttl/3, s.Reconnect) }},
		"lost": {
			policy: term, after: 5 * time.Second, happens: lost,
			received: "SIGTERM +0s", reported: "lost, deleted; sending SIGTERM to the command, SIGKILL in 1s", ending: lock.ErrLost,
		},
		"lost, and deaf": {
			policy: term, deaf: true, after: 5 * time.Second, happens: lost,
			received: "SIGTERM +0s, SIGCONT +0s, SIGKILL +1s", reported: "lost, deleted; sending SIGTERM", ending: lock.ErrLost,
		},
		"lost, and killed": {
			policy: kill, deaf: true, after: 5 * time.Second, happens: lost,
			received: "SIGKILL +0s", reported: "lost, deleted; sending SIGKILL", ending: lock.ErrLost,
		},
		"lost, and ignored": {
			policy: ignore, after: 5 * time.Second, happens: lost,
			reported: "lost, deleted; the command runs on without it", ending: lock.ErrLost,
		},
		"taken over": {
			policy: term, after: 5 * time.Second,
			happens: func(t *testing.T, s *server) {
				// At once: a renewal in between would find no lock.
				_, err := s.Client(t).TxPipelined(t.Context(), func(p redis.Pipeliner) error {
					p.Del(t.Context(), "job")
					return p.HSet(t.Context(), "job", "other:1", 1).Err()
				})
				assert.NoError(t, err)
			},
			received: "SIGTERM +0s", reported: "lost, taken over; sending SIGTERM", ending: lock.ErrLost,
		},
		"running out": {
			policy: term, happens: mute,
			received: "SIGTERM +0s", reported: "not renewed, and about to run out; sending SIGTERM", ending: errRunsOut,
		},
		"running out, and deaf": {
			policy: term, deaf: true, happens: mute,
			received: "SIGTERM +0s, SIGCONT +0s, SIGKILL +1s", reported: "about to run out", ending: errRunsOut,
		},
		"running out, and killed": {
			policy: kill, happens: mute,
			received: "SIGKILL +0s", reported: "about to run out; sending SIGKILL", ending: errRunsOut,
		},
		"running out, and ignored": {
			policy: ignore, happens: mute,
			reported: "lost, store unreachable; the command runs on without it", ending: lock.ErrLost,
		},
		"held for too long": {
			policy: term, maxHold: 50 * time.Second, happens: func(*testing.T, *server) {},
			received: "SIGTERM +0s", reported: "--max-hold is over; sending SIGTERM", ending: errHeldTooLong,
		},
		"held for too long, and deaf": {
			policy: term, deaf: true, maxHold: 50 * time.Second, happens: func(*testing.T, *server) {},
			received: "SIGTERM +0s, SIGCONT +0s, SIGKILL +1s", reported: "--max-hold is over", ending: errHeldTooLong,
		},
		"held for too long, and killed": {
			policy: kill, maxHold: 50 * time.Second, happens: func(*testing.T, *server) {},
			received: "SIGKILL +0s", reported: "--max-hold is over; sending SIGKILL", ending: errHeldTooLong,
		},
		"held for too long, losses ignored": { // the user has set this limit
			policy: ignore, maxHold: 50 * time.Second, happens: func(*testing.T, *server) {},
			received: "SIGTERM +0s", reported: "--max-hold is over; sending SIGTERM", ending: errHeldTooLong,
		},
		"lost, which is ignored, and held for too long": {
			policy: ignore, maxHold: 50 * time.Second, after: 5 * time.Second, happens: lost,
			received: "SIGTERM +0s", reported: "--max-hold is over; sending SIGTERM", ending: errHeldTooLong,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := locktest.Start(t)
				lease, err := server.Locker(t, lock.Config{TTL: ttl}).Mutex("job").Lock(t.Context())
				require.NoError(t, err)
				begin, command := time.Now(), newGroup(test.deaf)
				time.AfterFunc(test.after, func() { test.happens(t, server) })
				atEnd := time.AfterFunc(5*time.Minute, func() { command.end(7 << 8) })
				var stderr strings.Builder
				s := supervisor{
					child: command.child, lease: lease, policy: test.policy, maxHold: test.maxHold,
					stderr: &stderr, say: func(string, ...any) {},
				}
				status, ending := s.supervise()
				assert.Equal(t, !atEnd.Stop(), test.received == "", "it ended by itself")
				if test.received == "" {
					assert.Equal(t, 7, exitCode(status))
				}
				require.ErrorIs(t, ending, test.ending)
				assert.Equal(t, test.received, strings.Join(command.received, ", "))
				switch {
				case test.received == "":
				case test.maxHold > 0:
					assert.Equal(t, test.maxHold, command.first.Sub(begin))
				case errors.Is(ending, errRunsOut):
					assert.Equal(t, test.policy.lead(), lease.Until().Sub(command.first))
				default: // by the next renewal
					assert.LessOrEqual(t, command.first.Sub(begin), test.after+ttl/2)
				}
				assert.Contains(t, stderr.String(), test.reported)
				assert.Equal(t, test.reported != "", stderr.String() != "", stderr.String())
				server.Thaw()
			})
		})
	}
}

// A job that was suspended beyond its lease gets SIGTERM before it continues, and one that is being
// ended is not suspended: SIGKILL would come too late.
func TestSuperviseSuspended(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	for name, test := range map[string]struct {
		lost     bool // before Ctrl-Z
		received string
	}{
		"beyond its lease":    {false, "SIGTSTP +0s, SIGTERM +24s, SIGCONT +24s, SIGCONT +24s, SIGKILL +25s"},
		"while it was ending": {true, "SIGTERM +0s, SIGCONT +0s, SIGTSTP +500ms, SIGKILL +1s"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // select chooses at random
				synctest.Test(t, func(t *testing.T) {
					server := locktest.Start(t)
					lease, err := server.Locker(t, lock.Config{TTL: ttl}).Mutex("job").Lock(t.Context())
					require.NoError(t, err)
					command, signals := newGroup(true), make(chan os.Signal, 1)
					command.suspend = func() {
						time.Sleep(2 * ttl)
						signals <- unix.SIGCONT
					}
					if test.lost {
						server.Delete("job")
						go func() {
							<-lease.Lost()
							time.Sleep(ttl / 24)
							signals <- unix.SIGTSTP
						}()
					} else {
						server.Freeze()
						signals <- unix.SIGTSTP
					}
					s := supervisor{
						child: command.child, lease: lease, signals: signals, stderr: io.Discard, say: func(string, ...any) {},
						policy: lossPolicy{action: lossTerm, grace: time.Second, margin: 100 * time.Millisecond},
					}
					_, ending := s.supervise()
					assert.Equal(t, test.received, strings.Join(command.received, ", "))
					require.Error(t, ending)
					server.Thaw()
				})
			}
		})
	}
}

// A stopped command takes a signal that ends it only once it is continued. Others leave it stopped.
func TestSignalsToAStoppedCommand(t *testing.T) {
	t.Parallel()
	for sig, received := range map[os.Signal]string{
		unix.SIGTERM: "SIGSTOP +0s, SIGTERM +0s, SIGCONT +0s",
		unix.SIGHUP:  "SIGSTOP +0s, SIGHUP +0s, SIGCONT +0s",
		unix.SIGINT:  "SIGSTOP +0s, SIGINT +0s",
		unix.SIGUSR1: "SIGSTOP +0s, SIGUSR1 +0s",
	} {
		synctest.Test(t, func(t *testing.T) {
			server := locktest.Start(t)
			lease, err := server.Locker(t, lock.Config{}).Mutex("job").Lock(t.Context())
			require.NoError(t, err)
			command, signals := newGroup(true), make(chan os.Signal, 1)
			require.NoError(t, command.take(-command.pid, unix.SIGSTOP))
			command.report(unix.WaitStatus(unix.SIGSTOP<<8 | 0x7f))
			signals <- sig
			time.AfterFunc(time.Minute, func() { command.end(unix.WaitStatus(unix.SIGKILL)) })
			s := supervisor{child: command.child, lease: lease, signals: signals, stderr: io.Discard, say: func(string, ...any) {}, policy: lossPolicy{action: lossTerm}}
			_, ending := s.supervise()
			require.NoError(t, ending)
			assert.Equal(t, received, strings.Join(command.received, ", "))
		})
	}
}

// A guard that ends before its first report is a failed start, and not waited for.
func TestGuardThatEndsAtOnce(t *testing.T) {
	command, err := startChild(childSpec{path: "/bin/true", argv: []string{"true"}})
	assert.Nil(t, command)
	require.ErrorContains(t, err, "its guard ended")
}
