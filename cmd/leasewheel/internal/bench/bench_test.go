//go:build unix

package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// The measurement finds every broken promise, each by itself.
func TestBenchRenewalBroken(t *testing.T) {
	sound := func() renewalReport {
		r := renewalReport{Stopped: &stoppedMaster{Node: "h:1", Leases: 2, Lost: 2}}
		r.Renewed, r.Stopped.Told.Max = 1, toldLimit
		return r
	}
	report := sound()
	assert.Empty(t, report.broken())
	for complaint, spoil := range map[string]func(*renewalReport){
		"1,234 leases were lost":                                   func(r *renewalReport) { r.Lost = 1234 },
		"3 renewals came when less than half of the TTL was left":  func(r *renewalReport) { r.Late = 3 },
		"nothing was renewed":                                      func(r *renewalReport) { r.Renewed = 0 },
		"of 2 leases on the stopped master 1 were reported lost":   func(r *renewalReport) { r.Stopped.Lost = 1 },
		"a loss was reported 61ms after the lease's time was over": func(r *renewalReport) { r.Stopped.Told.Max = toldLimit + time.Millisecond },
	} {
		report := sound()
		spoil(&report)
		assert.Equal(t, complaint, report.broken())
	}
}

// badInput is an execution that fails before it measures: its exit code, what it says, and
// its arguments.
type badInput struct {
	code int
	says string
	args string
}

// requireRefusals runs a measurement with input that every measurement refuses, and with
// further cases by name.
func requireRefusals(t *testing.T, measurement string, further map[string]badInput) {
	t.Helper()
	cases := map[string]badInput{
		"no server":      {exit.Usage, "no server", ""},
		"no such server": {exit.Unavailable, "connection refused", "--store redis://:" + commandtest.Secret + "@127.0.0.1:1"},
		"no URL":         {exit.Usage, "scheme", "--store nonsense://:" + commandtest.Secret + "@h"},
		"short duration": {exit.Usage, "--duration 10ms", "--duration 10ms"},
		"unknown start":  {exit.Usage, "single and cluster", "--start sentinel"},
		"two servers":    {exit.Usage, "exclude each other", "--start single --store redis://h"},
		"arguments":      {exit.Usage, "takes no arguments", "30"},
	}
	maps.Copy(cases, further)
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			p := commandtest.Call(t, nil, append([]string{"bench", measurement}, strings.Fields(test.args)...)...)
			assert.Equal(t, test.code, p.Wait())
			p.RequireOneLine(test.says)
		})
	}
}

func TestBenchRenewalBadInput(t *testing.T) {
	t.Parallel()
	requireRefusals(t, "renewal", map[string]badInput{
		"no leases":          {exit.Usage, "--leases 0", "-n 0"},
		"too many leases":    {exit.Usage, "--leases 10000001", "-n 10000001"},
		"negative baseline":  {exit.Usage, "--baseline -1", "--baseline -1"},
		"too large baseline": {exit.Usage, "--baseline 200001", "--baseline 200001"},
		"short TTL":          {exit.Usage, "--ttl 500ms", "--ttl 500ms"},
		"no time for a stop": {exit.Usage, "two TTLs", "--start cluster --stop-master --ttl 30s --duration 59s"},
	})
}

func TestBenchNeedsARedisServer(t *testing.T) {
	t.Parallel()
	for _, measurement := range []string{"renewal", "lock"} {
		p := commandtest.Start(t, []string{"REDIS_SERVER=/no/such/redis-server"}, "bench", measurement, "--start", "single")
		assert.Equal(t, exit.Unavailable, p.Wait())
		p.RequireOneLine("cannot start a server")
	}
}

// A server that answers, and refuses what is measured, is no failure of the measurement.
func TestBenchIsRefused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Config{Users: []string{"weak on >" + commandtest.Secret + " ~* -@all +ping +hello"}})
	_, path := server.Addr()
	for _, measurement := range []string{"renewal", "lock"} {
		p := commandtest.Call(t, []string{connect.URLVariable + "=unix://weak:" + commandtest.Secret + "@" + path}, "bench", measurement)
		assert.Equal(t, exit.Unavailable, p.Wait())
		p.RequireOneLine("NOPERM")
	}
}

// A server that runs elsewhere has the number of another process of this machine, which is not stopped.
func TestOnlyAProcessOfThisMachineIsStopped(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Config{}).Client(t)
	info, err := client.InfoMap(t.Context(), "server").Result()
	require.NoError(t, err)
	executable := info["Server"]["executable"]
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	require.NoError(t, err)
	require.NoError(t, isLocal(t.Context(), client, pid, executable))
	require.ErrorContains(t, isLocal(t.Context(), client, os.Getpid(), executable), "no process of this machine")
}

// Processes that contend get the password of a pipe, which this one has read.
func TestContendersGetThePasswordOfAPipe(t *testing.T) {
	t.Parallel()
	_, address := redistest.Start(t, redistest.Config{TCP: true, Password: commandtest.Secret}).Addr()
	read, write, err := os.Pipe()
	require.NoError(t, err)
	_, err = write.WriteString(commandtest.Secret)
	require.NoError(t, err)
	require.NoError(t, write.Close())
	flags := connect.Flags{URLs: []string{"redis://" + address}}
	flags.PasswordFile = fmt.Sprintf("/dev/fd/%d", read.Fd())
	server, err := openBenchServer(t.Context(), "", flags, contenderConfig)
	require.NoError(t, err)
	defer server.Close()
	require.NoError(t, read.Close())
	text, err := json.Marshal(server.contenderSpec(false))
	require.NoError(t, err)
	var spec contenderSpec
	require.NoError(t, json.Unmarshal(text, &spec))
	locks, err := spec.open()
	require.NoError(t, err)
	require.NoError(t, locks.Close())
}

func TestBenchRenewalNeedsACluster(t *testing.T) {
	t.Parallel()
	_, env := commandtest.OnServer(t, redistest.Config{})
	p := commandtest.Call(t, env, "bench", "renewal", "--stop-master", "--duration", "60s")
	assert.Equal(t, exit.Usage, p.Wait())
	p.RequireOneLine("needs a cluster")
}
