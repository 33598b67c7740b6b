//go:build real && unix

package demo

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/commandtest"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// small makes a demo that takes about as long as its faults.
var small = []string{"--processes", "3", "--leases", "200", "--ttl", "2s", "--duration", "1s", "--json"}

// demoOf returns the report of a demo. If that blames the machine it is run again, as it
// asks for, but not for ever.
func demoOf(t *testing.T, env []string, args ...string) report {
	t.Helper()
	p := commandtest.Start(t, env, args...)
	for range 2 {
		if p.Wait() != exit.Overloaded {
			break
		}
		p = commandtest.Start(t, env, args...)
	}
	require.Equal(t, 0, p.Wait(), "%s%s", p.Stdout, p.Stderr)
	assert.Empty(t, p.Stderr.String(), "progress is for terminals")
	var r report
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &r))
	return r
}

// check compares the report's figures with the demo's flags.
func check(t *testing.T, r report) {
	t.Helper()
	assert.Empty(t, r.Broken)
	assert.Equal(t, 3, r.Processes)
	assert.Equal(t, 2*time.Second, r.TTL)
	assert.Greater(t, r.Elapsed, r.Frozen.For)
	assert.Greater(t, r.Exclusion.Acquisitions, 10)
	assert.EqualValues(t, r.Exclusion.Acquisitions-1, r.Exclusion.Writes, "all but the frozen holder's")
	assert.Greater(t, r.Frozen.For, 2*time.Second)
	assert.Positive(t, r.Frozen.Awake)
	// The others, if a renewal was on its way when the holder was frozen, or about to be
	// sent.
	assert.Contains(t, []string{"expired here", "store unreachable", "taken over"}, r.Frozen.Cause)
	assert.Equal(t, 1, r.Frozen.StaleRefused)
	assert.Greater(t, r.Killed.Free, time.Second/2, "a dead holder's lock stays closed for about a TTL, or the second that it was handed over for")
	assert.Equal(t, 200, r.Leases.Count)
	assert.Greater(t, r.Leases.Renewals, int64(200))
	assert.Less(t, r.Leases.Batches, r.Leases.Renewals/2, "leases are renewed in batches")
	assert.Equal(t, 5, r.Leases.Told)
	assert.Greater(t, r.Timer.Fired, 100)
	assert.Positive(t, r.Timer.Max)
}

func TestDemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "leases.html")
	r := demoOf(t, commandtest.Nowhere, append([]string{"demo", "--html", file}, small...)...)
	check(t, r)
	assert.Equal(t, "embedded server", r.Server)
	checkPage(t, r, pageIn(t, file))
}

// pageIn reads the page that a demo has written, alone in its folder.
func pageIn(t *testing.T, file string) *element {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	assert.Len(t, entries, 1, "a temporary file is left")
	assert.True(t, strings.HasSuffix(string(text), "</html>\n"), "the page is whole")
	return parsePage(t, string(text))
}

// checkPage compares the page with the report of the same run.
func checkPage(t *testing.T, r report, page *element) {
	t.Helper()
	requireLoadsNothing(t, page)
	assert.Equal(t, everyPromiseKept, page.all(withClass("verdict"))[0].text)
	all := pictures(t, page)
	whole, many := all[0], all[len(all)-1]
	assert.Len(t, whole.lanes, r.Processes+1, "and one in place of the killed process")
	assert.Len(t, whole.takeovers, 2)
	count := map[string]int{}
	var holds []drawn
	for _, lane := range whole.drawn {
		for _, d := range lane {
			count[d.kind]++
			if d.kind == "held" {
				holds = append(holds, d)
			}
		}
	}
	assert.Equal(t, r.Exclusion.Acquisitions+1, count["held"], "and that of the killed holder")
	assert.Equal(t, 1, count["frozen"])
	assert.Equal(t, 2, count["lost"], "of the frozen and of the killed holder")
	assert.Equal(t, 1, count["killed"])
	assert.Equal(t, 1, count["refused"])
	assert.Equal(t, 2, count["taken-over"])
	slices.SortFunc(holds, func(a, b drawn) int { return cmp.Compare(a.from, b.from) })
	for i, h := range holds[1:] {
		assert.GreaterOrEqual(t, h.from, holds[i].until-0.001, "up to the precision of the picture: %v %v", holds[i], h)
	}

	count = map[string]int{}
	for _, lane := range many.drawn {
		for _, d := range lane {
			count[d.kind]++
		}
	}
	assert.Len(t, many.lanes, 10)
	assert.Equal(t, 10, count["held"])
	assert.Equal(t, r.Leases.Deleted, count["deleted"])
	assert.Equal(t, r.Leases.Told, count["reported"])
	assert.Greater(t, count["renewed"], 10)
	assert.Greater(t, len(many.batches), 1)
}

// On a real server the demo shows the same. What it leaves there expires, and no lock and no
// waiter is among it.
func TestDemoOnARealServer(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Password: commandtest.Secret})
	file := filepath.Join(t.TempDir(), "leases.html")
	r := demoOf(t, nil, append([]string{"demo", "--store", server.URL(), "--html", file}, small...)...)
	check(t, r)
	page, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.NotContains(t, string(page), commandtest.Secret)
	assert.Regexp(t, `^redis \d+\.\d+`, r.Server)

	client, ctx := server.Client(t), commandtest.Bounded(t)
	keys, err := client.Keys(ctx, "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		left, err := client.PTTL(ctx, key).Result()
		require.NoError(t, err)
		assert.NotEqual(t, noExpiry, left, key)
		kind, _, _ := strings.Cut(key, ":{leasewheel:demo:")
		switch {
		case strings.HasPrefix(key, "leasewheel:client:"):
		case kind == "leasewheel_lock_line":
			waiters, err := client.ZRange(ctx, key, 0, -1).Result()
			require.NoError(t, err)
			assert.Subset(t, []string{"gap"}, waiters, "all but the mark of the last yield window is a waiter")
		default:
			assert.Contains(t, []string{"redisson_lock_token", "leasewheel_lock_turns"}, kind, key)
		}
	}
}

// noExpiry is the PTTL that go-redis returns for a key that stays.
const noExpiry = time.Duration(-1)

// atWork waits until a demo has taken leases on the server, and returns its own client.
func atWork(t *testing.T, server *redistest.Server) redis.UniversalClient {
	t.Helper()
	client, ctx := server.Client(t), commandtest.Bounded(t)
	commandtest.Eventually(t, "at work", func() bool {
		n, err := client.DBSize(ctx).Result()
		return err == nil && n > 100
	})
	return client
}

func TestDemoInterrupted(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	file := filepath.Join(t.TempDir(), "leases.html")
	p := commandtest.Start(t, nil, "demo", "--store", server.URL(), "--duration", "40s", "--html", file)
	client := atWork(t, server)
	p.Signal(unix.SIGINT)
	assert.Equal(t, 130, p.Wait())
	assert.Empty(t, p.Stdout.String())
	// The server may read our request together with the ends of connections, and closes those
	// after it.
	commandtest.Eventually(t, "without a process of the demo", func() bool {
		clients, err := client.ClientList(commandtest.Bounded(t)).Result()
		require.NoError(t, err)
		return strings.Count(clients, "\n") == 1 // ours
	})
	page := pageIn(t, file)
	assert.Equal(t, "The demo did not finish: interrupt. No promise was judged.", page.all(withClass("verdict"))[0].text)
	assert.Len(t, pictures(t, page)[0].lanes, 6)
}

// A demo that was stopped for longer than a TTL, as on a machine without time for it, has
// lost its leases, and blames the machine.
func TestDemoOfAStoppedMachine(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	p := commandtest.Start(t, nil, append([]string{"demo", "--store", server.URL()}, small...)...)
	client := atWork(t, server)
	p.Signal(unix.SIGSTOP)
	commandtest.Eventually(t, "all leases have expired", func() bool {
		keys, err := client.Keys(commandtest.Bounded(t), "leasewheel:demo:*:lease:*").Result()
		return err == nil && len(keys) == 0
	})
	p.Signal(unix.SIGCONT)
	require.Equal(t, exit.Overloaded, p.Wait(), "%s%s", p.Stdout, p.Stderr)
	if p.Stdout.String() == "" { // a request was too late
		p.RequireOneLine("the machine was overloaded (a plain timer of the demo was late ")
		return
	}
	var r report
	require.NoError(t, json.Unmarshal([]byte(p.Stdout.String()), &r))
	assert.Greater(t, r.Stalls.Worst, time.Second)
	assert.NotEmpty(t, r.Overloaded)
	assert.Empty(t, r.Broken)
}

// A page that cannot be written any more at the end is an error beside the report.
func TestDemoPageNotWritten(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	folder := filepath.Join(t.TempDir(), "folder")
	require.NoError(t, os.Mkdir(folder, 0o700))
	p := commandtest.Start(t, nil, append([]string{"demo", "--store", server.URL(), "--html", filepath.Join(folder, "leases.html")}, small...)...)
	atWork(t, server)
	require.NoError(t, os.RemoveAll(folder))
	assert.Equal(t, exit.Internal, p.Wait())
	p.RequireOneLine("the page was not written: open " + filepath.Join(folder, "leases.html") + ": no such file")
	assert.Contains(t, p.Stdout.String(), `"acquisitions"`)
}
