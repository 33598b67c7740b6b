//go:build real

package locks

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// An adapter that locks nothing would be the fastest. So each must hand a lock over among
// goroutines and processes, and never to two at once.
func TestImplementationsDoTheirWork(t *testing.T) {
	for _, i := range impls {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			if i.pairsOnly {
				untilCounted(t, "no pair was counted", func() bool {
					return measurePairs(t, i, redistest.Start(t, redistest.Config{})).Count > 0
				})
				return
			}
			for _, processes := range []int{1, 2} {
				untilCounted(t, fmt.Sprintf("%d processes: the lock was not granted", processes), func() bool {
					// Not every library cleans up after waiters that have gone.
					h := handOverOnce(t, i, redistest.Start(t, redistest.Config{}), processes)
					if h.Overlaps != 0 {
						t.Errorf("%d processes: two held the lock at once, %d times", processes, h.Overlaps)
					}
					return h.Granted() > 0
				})
			}
		})
	}
}

// untilCounted repeats a measurement until it has counted something, for a minute at most: a busy
// machine may run no holder within a window.
func untilCounted(t *testing.T, nothing string, counted func() bool) {
	t.Helper()
	for begun := time.Now(); !counted(); {
		if time.Since(begun) > time.Minute {
			t.Fatal(nothing)
		}
	}
}

// After their first time to live all locks are held: each adapter renews.
func TestHoldersKeepTheirLocks(t *testing.T) {
	for _, h := range holders {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			admin := server.Client(t)
			const locks, ttl = 10, 5 * time.Second
			keeper, err := h.open(server.Options().Addr, locks, ttl)
			if err != nil {
				t.Fatal(err)
			}
			names := make([]string, locks)
			for n := range names {
				names[n] = fmt.Sprint(name, n)
				if err := keeper.hold(t.Context(), n, names[n]); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(ttl + ttl/4)
			if held, err := admin.Exists(t.Context(), names...).Result(); held != locks || err != nil {
				t.Errorf("%d of %d are held: %v", held, locks, err)
			}
			if err := keeper.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func measurePairs(t *testing.T, i impl, server *redistest.Server) *contention.Paired {
	t.Helper()
	p, err := contention.Pairs{
		Prefix: name, Goroutines: 3, Names: 64, Window: 200 * time.Millisecond,
	}.Measure(t.Context(), i.way(server.Options().Addr), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func handOverOnce(t *testing.T, i impl, server *redistest.Server, processes int) *contention.Handed {
	t.Helper()
	h, err := contention.HandOver{
		Name: name, Waiters: 4, Processes: processes, WarmUp: 50 * time.Millisecond, Window: 300 * time.Millisecond,
	}.Measure(t.Context(), i.way(server.Options().Addr), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// The server's statistics add up the commands of clients and of scripts. MONITOR reports the
// origin of each command, so this test checks with it that their names distinguish the two.
func TestCommandsAreDistinguished(t *testing.T) {
	for _, i := range impls {
		t.Run(i.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Config{})
			clients, scripts := watchCommands(t, server, func() {
				if i.pairsOnly {
					measurePairs(t, i, server)
				} else {
					handOverOnce(t, i, server, 1)
				}
			})
			if len(clients) == 0 {
				t.Fatal("no command was seen")
			}
			for _, command := range clients {
				if !i.sent(command) {
					t.Errorf("clients send %s, which counts as called by scripts", command)
				}
			}
			for _, command := range scripts {
				if i.sent(command) {
					t.Errorf("scripts call %s, which counts as sent by clients", command)
				}
			}
		})
	}
}

var monitored = regexp.MustCompile(`^\+[\d.]+ \[\d+ (\S+)\] "(\w+)"`)

// watchCommands returns the commands that clients send, and those that scripts
// call, while f runs.
func watchCommands(t *testing.T, server *redistest.Server, f func()) (clients, scripts []string) {
	t.Helper()
	conn, err := net.Dial("unix", server.Options().Addr)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %v %q", err, lines.Text())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			m := monitored.FindStringSubmatch(lines.Text())
			if m == nil {
				continue
			}
			command := strings.ToLower(m[2])
			if m[1] == "lua" {
				scripts = append(scripts, command)
			} else {
				clients = append(clients, command)
			}
		}
	}()
	f()
	// MONITOR reports earlier commands first.
	server.Client(t).Echo(t.Context(), "end")
	conn.Close()
	<-done
	distinct := func(names []string) []string {
		slices.Sort(names)
		return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "echo" })
	}
	return distinct(clients), distinct(scripts)
}
