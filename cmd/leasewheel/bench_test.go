//go:build unix

package main

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// benchRenewal runs a measurement and returns its report, and the document as it
// was printed.
func benchRenewal(t *testing.T, code int, env []string, args ...string) (report benchRenewalReport, document map[string]any) {
	t.Helper()
	p := start(t, env, append([]string{"bench", "renewal", "--json"}, args...)...)
	require.Equal(t, code, p.wait())
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report))
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &document))
	return report, document
}

func TestBenchRenewal(t *testing.T) {
	server, env := onServer(t, redistest.Config{})
	report, document := benchRenewal(t, exitOK, env, "-n", "500", "--ttl", "1s", "--duration", "2s")

	schema := readSchema(t, "bench-renewal")
	assert.Empty(t, schema.faults("", document))
	assert.Empty(t, schema.unnamed("", document))

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
	p := start(t, nil, "bench", "renewal", "--start", "single", "-n", "10", "--ttl", "3s", "--duration", "1s")
	require.Equal(t, exitOK, p.wait())
	for _, line := range []string{"leases of 3s on redis 7", "watchdog  goroutine each", "client CPU for a renewal", "0 lost and 0 late\n"} {
		assert.Contains(t, p.stdout.String(), line)
	}
	assert.Empty(t, p.stderr.String(), "no progress where there is no terminal")
}

// A master is stopped for longer than the TTL. All of its leases are reported lost, and
// counted separately. How late losses and the other masters' renewals are depends on the
// machine. TestBenchRenewalBroken checks how the measurement judges that. Package renewal
// checks in virtual time that they are in time (TestMuteGroupAmongThree,
// TestLossIsToldAtUntil).
func TestBenchRenewalWithoutMaster(t *testing.T) {
	redistest.Need(t)
	p := start(t, nil, "bench", "renewal", "--json",
		"--start", "cluster", "-n", "600", "--ttl", "3s", "--duration", "6s", "--stop-master", "--baseline", "0")
	code := p.wait()
	var report benchRenewalReport
	var document map[string]any
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report))
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &document))
	assert.Empty(t, readSchema(t, "bench-renewal").faults("", document))
	require.NotNil(t, report.Stopped)
	assert.InDelta(t, 200, report.Stopped.Leases, 100)
	assert.Equal(t, report.Stopped.Leases, report.Stopped.Lost)
	assert.Positive(t, report.Renewed)
	assert.Nil(t, report.Baseline)
	if complaint := report.broken(); complaint == "" {
		assert.Equal(t, exitOK, code)
	} else {
		assert.Equal(t, exitBroken, code)
		p.requireOneLine(complaint)
	}
}

// The measurement finds every broken promise, each by itself.
func TestBenchRenewalBroken(t *testing.T) {
	sound := func() benchRenewalReport {
		r := benchRenewalReport{Stopped: &stoppedMaster{Node: "h:1", Leases: 2, Lost: 2}}
		r.Renewed, r.Stopped.Told.Max = 1, toldLimit
		return r
	}
	report := sound()
	assert.Empty(t, report.broken())
	for complaint, spoil := range map[string]func(*benchRenewalReport){
		"1,234 leases were lost":                                   func(r *benchRenewalReport) { r.Lost = 1234 },
		"3 renewals came when less than half of the TTL was left":  func(r *benchRenewalReport) { r.Late = 3 },
		"nothing was renewed":                                      func(r *benchRenewalReport) { r.Renewed = 0 },
		"of 2 leases on the stopped master 1 were reported lost":   func(r *benchRenewalReport) { r.Stopped.Lost = 1 },
		"a loss was reported 61ms after the lease's time was over": func(r *benchRenewalReport) { r.Stopped.Told.Max = toldLimit + time.Millisecond },
	} {
		report := sound()
		spoil(&report)
		assert.Equal(t, complaint, report.broken())
	}
}

// A lease lost without a reason breaks the promise, in the report and in the exit code.
func TestBenchRenewalLosses(t *testing.T) {
	t.Parallel()
	server, env := onServer(t, redistest.Config{})
	p := start(t, env, "bench", "renewal", "--json", "-n", "50", "--ttl", "3s", "--duration", "3s", "--baseline", "0")
	client, ctx := server.Client(t), bounded(t)
	var leases []string
	eventually(t, "all taken", func() (all bool) {
		var err error
		leases, err = client.Keys(ctx, "leasewheel-bench:*").Result()
		require.NoError(t, err)
		return len(leases) == 50
	})
	require.NoError(t, client.Del(ctx, leases[:20]...).Err())
	require.Equal(t, exitBroken, p.wait())
	var report benchRenewalReport
	require.NoError(t, json.Unmarshal([]byte(p.stdout.String()), &report))
	assert.EqualValues(t, 20, report.Lost)
	p.requireOneLine("20 leases were lost")
}

// A measurement that is interrupted leaves nothing behind.
func TestBenchRenewalInterrupted(t *testing.T) {
	server, env := onServer(t, redistest.Config{})
	p := start(t, env, "bench", "renewal", "-n", "50", "--duration", "1h", "--baseline", "0")
	client, ctx := server.Client(t), bounded(t)
	left := func() int {
		keys, err := client.Keys(ctx, "leasewheel-bench:*").Result()
		require.NoError(t, err)
		return len(keys)
	}
	eventually(t, "all taken", func() bool { return left() == 50 })
	p.signal(unix.SIGINT)
	require.Equal(t, exitSignal+int(unix.SIGINT), p.wait())
	assert.Zero(t, left())
	assert.Empty(t, p.stdout.String())
}

// badInput is an execution that fails before it measures: its exit code, what it says, and
// its arguments.
type badInput struct {
	code int
	says string
	args string
}

// benchRefuses runs a measurement with input that every measurement refuses, and with
// further cases by name.
func benchRefuses(t *testing.T, measurement string, further map[string]badInput) {
	t.Helper()
	cases := map[string]badInput{
		"no server":       {exitUsage, "no server", ""},
		"no such server":  {exitUnavailable, "connection refused", "--redis redis://:" + secret + "@127.0.0.1:1"},
		"no URL":          {exitUsage, "scheme", "--redis nonsense://:" + secret + "@h"},
		"short duration":  {exitUsage, "--duration 10ms", "--duration 10ms"},
		"unknown start":   {exitUsage, "single and cluster", "--start sentinel"},
		"two servers":     {exitUsage, "exclude each other", "--start single --redis redis://h"},
		"arguments":       {exitUsage, "takes no arguments", "30"},
		"no redis-server": {exitUnavailable, "cannot start a server", "--start single"},
	}
	maps.Copy(cases, further)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			env := []string{redisURLVariable + "=", "REDIS_SERVER=/no/such/redis-server"}
			p := start(t, env, append([]string{"bench", measurement}, strings.Fields(test.args)...)...)
			assert.Equal(t, test.code, p.wait())
			p.requireOneLine(test.says)
		})
	}
}

func TestBenchRenewalBadInput(t *testing.T) {
	t.Parallel()
	benchRefuses(t, "renewal", map[string]badInput{
		"no leases":          {exitUsage, "--leases 0", "-n 0"},
		"too many leases":    {exitUsage, "--leases 10000001", "-n 10000001"},
		"too large baseline": {exitUsage, "--baseline 200001", "--baseline 200001"},
		"short TTL":          {exitUsage, "--ttl 500ms", "--ttl 500ms"},
		"no time for a stop": {exitUsage, "two TTLs", "--start cluster --stop-master --ttl 30s --duration 59s"},
	})
}

func TestBenchRenewalNeedsACluster(t *testing.T) {
	t.Parallel()
	_, env := onServer(t, redistest.Config{})
	p := start(t, env, "bench", "renewal", "--stop-master", "--duration", "60s")
	assert.Equal(t, exitUsage, p.wait())
	p.requireOneLine("needs a cluster")
}
