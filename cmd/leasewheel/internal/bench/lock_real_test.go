//go:build real && unix

package bench

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// benchLock runs a measurement and returns its report, checked against the schema.
func benchLock(t *testing.T, env []string, args ...string) (report lockReport) {
	t.Helper()
	p := commandtest.Start(t, env, append([]string{"bench", "lock", "--json"}, args...)...)
	require.Equal(t, exit.OK, p.Wait(), p.Stderr)
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &report))
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &document))
	schema := commandtest.ReadSchema(t, "bench-lock")
	assert.Empty(t, schema.Faults("", document))
	assert.Empty(t, schema.Unnamed("", document))
	return report
}

// requireEmpty checks that a server used by a measurement alone has no keys.
func requireEmpty(t *testing.T, server *redistest.Server) {
	t.Helper()
	left, err := server.Client(t).Keys(commandtest.Bounded(t), "*").Result()
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestBenchLock(t *testing.T) {
	for name, fair := range map[string]bool{"mutex": false, "fair": true} {
		t.Run(name, func(t *testing.T) {
			server, env := commandtest.OnServer(t, redistest.Config{})
			args := []string{"-g", "1,4", "-w", "2,6", "--processes", "3,1", "--hold", "1ms", "--duration", "300ms"}
			if fair {
				args = append(args, "--fair")
			}
			report := benchLock(t, env, args...)
			assert.Equal(t, fair, report.Fair)
			assert.Equal(t, time.Millisecond, report.Hold)
			require.Len(t, report.Pairs, 2)
			for i, p := range report.Pairs {
				assert.Equal(t, []int{1, 4}[i], p.Goroutines)
				assert.Positive(t, p.ClientCPU)
				assert.Positive(t, p.Latency.P50)
				// One request acquires a lock and one releases it.
				assert.InDelta(t, 2, p.Commands, 1)
				assert.Greater(t, p.Calls, 2.0)
				assert.InEpsilon(t, float64(p.Pairs)/p.ElapsedSeconds, p.PerSecond, 1e-6)
			}
			require.Len(t, report.HandOvers, 4)
			for i, h := range report.HandOvers {
				want := [][2]int{{2, 1}, {2, 2}, {6, 1}, {6, 3}}[i]
				assert.Equal(t, want, [2]int{h.Waiters, h.Processes})
				assert.Zero(t, h.Overlaps, "broken promise: two waiters held the lock")
				assert.Positive(t, h.HandOvers)
				assert.LessOrEqual(t, h.HandOvers, h.Grants)
				// Every holder kept it for a millisecond.
				assert.LessOrEqual(t, float64(h.Grants-1), h.ElapsedSeconds*1000)
				assert.Positive(t, h.Latency.P50)
				// A percentile is rounded up, to two digits.
				assert.GreaterOrEqual(t, h.Longest+h.Longest/50, h.Wait.P50)
				assert.Positive(t, h.Commands)
				assert.LessOrEqual(t, h.Jain, 1.0)
			}
			requireEmpty(t, server)
		})
	}
}

func TestBenchLockOnCluster(t *testing.T) {
	redistest.Need(t)
	report := benchLock(t, nil, "--start", "cluster", "-g", "8", "-w", "4", "--processes", "1,2", "--duration", "200ms")
	assert.True(t, strings.HasSuffix(report.Server, " cluster"), report.Server)
	assert.Len(t, report.Pairs, 1)
	assert.Len(t, report.HandOvers, 2)
}

// Contenders in other processes get the password, and no other process sees it.
func TestBenchLockWithPassword(t *testing.T) {
	server, env := commandtest.OnServer(t, redistest.Config{Password: commandtest.Secret})
	report := benchLock(t, env, "-g", "0", "-w", "2", "--processes", "2", "--duration", "100ms")
	assert.Empty(t, report.Pairs)
	assert.Len(t, report.HandOvers, 1)
	requireEmpty(t, server)
}

func TestBenchLockTable(t *testing.T) {
	redistest.Need(t)
	p := commandtest.Start(t, nil, "bench", "lock", "--start", "single", "-g", "2", "-w", "3", "--processes", "1", "--duration", "200ms")
	require.Equal(t, exit.OK, p.Wait())
	for _, text := range []string{"mutexes on redis 7", "goroutines  pairs/s", "waiters  processes  hand-overs/s", "no lock was held by two at once\n"} {
		assert.Contains(t, p.Stdout.String(), text)
	}
	assert.Empty(t, p.Stderr.String(), "no progress where there is no terminal")
}

// A measurement that is interrupted leaves nothing behind, neither on the server nor
// here.
func TestBenchLockInterrupted(t *testing.T) {
	for name, test := range map[string]struct {
		by   syscall.Signal
		args []string
	}{
		"pairs":     {unix.SIGTERM, []string{"-g", "4", "-w", "0"}},
		"here":      {unix.SIGQUIT, []string{"-g", "0", "-w", "4", "--processes", "1"}},
		"processes": {unix.SIGHUP, []string{"-g", "0", "-w", "4", "--processes", "2", "--fair"}},
	} {
		t.Run(name, func(t *testing.T) {
			server, env := commandtest.OnServer(t, redistest.Config{})
			p := commandtest.Start(t, env, append([]string{"bench", "lock", "--hold", "1ms", "--duration", "1h"}, test.args...)...)
			client, ctx := server.Client(t), commandtest.Bounded(t)
			commandtest.Eventually(t, "it measures", func() bool {
				keys, err := client.Keys(ctx, "redisson_lock_token:{leasewheel-bench:*").Result()
				require.NoError(t, err)
				return len(keys) > 0
			})
			p.Signal(test.by)
			require.Equal(t, exit.Signal+int(test.by), p.Wait())
			assert.Empty(t, p.Stdout.String())
			assert.Empty(t, p.Stderr.String())
			requireEmpty(t, server)
		})
	}
}
