//go:build real && unix

package bench

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// benchRenewal runs a measurement and returns its report, and the document as it
// was printed.
func benchRenewal(t *testing.T, code int, env []string, args ...string) (report renewalReport, document map[string]any) {
	t.Helper()
	p := commandtest.Start(t, env, append([]string{"bench", "renewal", "--json"}, args...)...)
	require.Equal(t, code, p.Wait())
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &report))
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &document))
	return report, document
}

func TestBenchRenewal(t *testing.T) {
	server, env := commandtest.OnServer(t, redistest.Config{})
	report, document := benchRenewal(t, exit.OK, env, "-n", "500", "--ttl", "1s", "--duration", "2s")

	schema := commandtest.ReadSchema(t, "bench-renewal")
	assert.Empty(t, schema.Faults("", document))
	assert.Empty(t, schema.Unnamed("", document))

	for _, figures := range []*renewalFigures{&report.renewalFigures, report.Baseline} {
		assert.Equal(t, 500, figures.Leases)
		assert.Zero(t, figures.Lost)
		assert.Positive(t, figures.ClientCPU)
		assert.Positive(t, figures.ServerKey)
	}
	// Three intervals of a lease are in a second.
	assert.InDelta(t, 3000, report.Renewed, 1000)
	assert.InDelta(t, 1500, report.Baseline.Renewed, 700)
	assert.Less(t, report.Goroutines, 50)
	assert.InDelta(t, 500, report.Baseline.Goroutines, 50)
	assert.Less(t, report.Requests, report.Renewed/4, "leases travel together")
	var sized int64
	for _, s := range report.Sizes {
		sized += s.Requests
	}
	assert.Equal(t, report.Requests, sized)
	assert.Equal(t, "redis 7.0", report.Server[:len("redis 7.0")])

	left, err := server.Client(t).Keys(t.Context(), "leasewheel-bench:*").Result()
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestBenchRenewalTable(t *testing.T) {
	t.Parallel()
	redistest.Need(t)
	p := commandtest.Start(t, nil, "bench", "renewal", "--start", "single", "-n", "10", "--ttl", "3s", "--duration", "1s")
	require.Equal(t, exit.OK, p.Wait())
	for _, line := range []string{"leases of 3s on redis 7", "watchdog  goroutine each", "client CPU for a renewal", "0 lost and 0 late\n"} {
		assert.Contains(t, p.Stdout.String(), line)
	}
	assert.Empty(t, p.Stderr.String(), "no progress where there is no terminal")
}

// A master is stopped for longer than the TTL. All of its leases are reported lost, and
// counted separately. How late losses and the other masters' renewals are depends on the
// machine. TestBenchRenewalBroken checks how the measurement judges that. Package renewal
// checks in virtual time that they are in time (TestUnresponsiveGroupAmongThree,
// TestLossIsReportedAtUntil).
func TestBenchRenewalWithoutMaster(t *testing.T) {
	redistest.Need(t)
	p := commandtest.Start(t, nil, "bench", "renewal", "--json",
		"--start", "cluster", "-n", "600", "--ttl", "3s", "--duration", "6s", "--stop-master", "--baseline", "0")
	code := p.Wait()
	var report renewalReport
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &report))
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &document))
	assert.Empty(t, commandtest.ReadSchema(t, "bench-renewal").Faults("", document))
	require.NotNil(t, report.Stopped)
	assert.InDelta(t, 200, report.Stopped.Leases, 100)
	assert.Equal(t, report.Stopped.Leases, report.Stopped.Lost)
	assert.Positive(t, report.Renewed)
	assert.Nil(t, report.Baseline)
	if complaint := report.broken(); complaint == "" {
		assert.Equal(t, exit.OK, code)
	} else {
		assert.Equal(t, exit.Broken, code)
		p.RequireOneLine(complaint)
	}
}

// A lease lost without a reason breaks the promise, in the report and in the exit code.
func TestBenchRenewalLosses(t *testing.T) {
	t.Parallel()
	server, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, "bench", "renewal", "--json", "-n", "50", "--ttl", "3s", "--duration", "3s", "--baseline", "0")
	client, ctx := server.Client(t), commandtest.Bounded(t)
	var leases []string
	commandtest.Eventually(t, "all taken", func() (all bool) {
		var err error
		leases, err = client.Keys(ctx, "leasewheel-bench:*").Result()
		require.NoError(t, err)
		return len(leases) == 50
	})
	require.NoError(t, client.Del(ctx, leases[:20]...).Err())
	require.Equal(t, exit.Broken, p.Wait())
	var report renewalReport
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &report))
	assert.EqualValues(t, 20, report.Lost)
	p.RequireOneLine("20 leases were lost")
}

// A measurement that is interrupted leaves nothing behind.
func TestBenchRenewalInterrupted(t *testing.T) {
	server, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Start(t, env, "bench", "renewal", "-n", "50", "--duration", "1h", "--baseline", "0")
	client, ctx := server.Client(t), commandtest.Bounded(t)
	left := func() int {
		keys, err := client.Keys(ctx, "leasewheel-bench:*").Result()
		require.NoError(t, err)
		return len(keys)
	}
	commandtest.Eventually(t, "all taken", func() bool { return left() == 50 })
	p.Signal(unix.SIGINT)
	require.Equal(t, exit.Signal+int(unix.SIGINT), p.Wait())
	assert.Zero(t, left())
	assert.Empty(t, p.Stdout.String())
}
