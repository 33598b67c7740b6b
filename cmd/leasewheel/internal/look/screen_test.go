package look

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/connect"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/duration"
	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/output"
	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// screenOf returns the lines of a refresh of locks with the names.
func screenOf(width, height int, names ...string) []string {
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	v := viewed{at: at}
	for i, name := range names {
		v.locks = append(v.locks, driver.Info{
			Name: name, HolderCount: 1, WaiterCount: int64(i), TTL: 27300 * time.Millisecond,
			Holders: []driver.Holder{{Owner: "285475da-9152-4c83-822a-67ee2f116a79:1", Since: at.Add(-3 * time.Second)}},
		})
	}
	r := &refresh{at: at, views: []viewed{v}}
	return r.lines(width, height, 2*time.Second)
}

func TestScreenLines(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{
		"12:00:00  every 2s  2 locks, 1 waiter",
		"",
		"NAME    KIND   HOLDER                                  HELD  TTL  WAITERS",
		"second  mutex  285475da-9152-4c83-822a-67ee2f116a79:1  3s    27s  1",
		"first   mutex  285475da-9152-4c83-822a-67ee2f116a79:1  3s    27s  0",
	}, screenOf(80, 24, "first", "second"))
	assert.Equal(t, "a-very-long-na…  mutex  285475da-9152-4…  3s    27s  0", screenOf(60, 24, "a-very-long-name-that-is-longer-than-its-column")[3])
}

// The manual shows a screen as it is drawn.
func TestScreenInTheManual(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	r := &refresh{at: at, views: []viewed{{at: at, locks: []driver.Info{
		{
			Name: "orders:42", TTL: 27300 * time.Millisecond, WaiterCount: 1, HolderCount: 1,
			Holders: []driver.Holder{{Client: driver.Client{Host: "web-1", Process: "shop", PID: 4711}, Since: at.Add(-3210 * time.Millisecond)}},
		},
		{
			Name: "report", Kind: driver.KindRead, TTL: 18900 * time.Millisecond, HolderCount: 2,
			Holders: []driver.Holder{{Client: driver.Client{Host: "web-2", Process: "etl", PID: 17}}, {}},
		},
	}}}}
	manual, err := os.ReadFile("../../../../docs/cli.md")
	require.NoError(t, err)
	assert.Contains(t, string(manual), "\n```\n"+strings.Join(r.lines(79, 23, 2*time.Second), "\n")+"\n```\n")
}

// On a narrow terminal columns go, before names and owners become unreadable.
func TestScreenOfANarrowTerminal(t *testing.T) {
	t.Parallel()
	for width, want := range map[int][2]string{
		50: {"NAME            HOLDER          HELD  TTL  WAITERS", "nightly:a-rat…  285475da-9152…  3s    27s  0"},
		44: {"NAME            HOLDER          TTL  WAITERS", "nightly:a-rat…  285475da-9152…  27s  0"},
		39: {"NAME            HOLDER          WAITERS", "nightly:a-rat…  285475da-9152…  0"},
	} {
		lines := screenOf(width, 24, "nightly:a-rather-long-name")
		assert.Equal(t, want[:], lines[2:4], width)
	}
}

// The number of further holders is not cut away.
func TestScreenCountsHolders(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "nightly[4711… +12", cut("nightly[4711]@a-host-with-a-long-name +12", 17))
	assert.Equal(t, "nigh…", cut("nightly[4711]@a-host +1,234", 5))
}

// No line is wider than the screen, and no refresh higher, whatever the names are.
func TestScreenFits(t *testing.T) {
	t.Parallel()
	names := []string{"orders:42", strings.Repeat("n", 512), strings.Repeat("名", 170), "evil\u202e\x1b[2J", "tab\tname"}
	for n := range 40 {
		names = append(names, fmt.Sprintf("lock:%d", n))
	}
	for width := 1; width <= 100; width += 9 {
		for height := 1; height <= 60; height += 3 {
			lines := screenOf(width, height, names...)
			require.LessOrEqual(t, len(lines), height)
			for _, line := range lines {
				require.LessOrEqual(t, output.Columns(line), max(width, 1), "%q", line)
				require.NotContains(t, line, "\x1b")
				require.NotContains(t, line, "\u202e")
			}
		}
	}
	lines := screenOf(80, 10, names...)
	require.Len(t, lines, 10)
	assert.Equal(t, "and 39 more; a PATTERN narrows the list", lines[9])
	assert.Contains(t, lines[3], "lock:39", "the most waiters first")
}

// After a failure the screen has the earlier locks, and says how old they are.
func TestScreenOfAnOutage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	r := &refresh{at: at, views: []viewed{
		{at: at.Add(-12 * time.Second), locks: []driver.Info{{Name: "orders:42", HolderCount: 1, Holders: []driver.Holder{{Owner: "x"}}}}, err: lock.ErrUnavailable},
	}}
	lines := r.lines(80, 24, time.Second)
	assert.Equal(t, "12s old: "+lock.ErrUnavailable.Error(), lines[1])
	assert.Contains(t, lines[4], "orders:42")
}

// A server that hangs is reported with each refresh, and the age of its locks grows, until
// it answers again.
func TestWatchOfAFrozenServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const interval = 2 * time.Second
		frozen := locktest.Start(t)
		store := frozen.Store(t)
		locker, err := lock.New(store, lock.Config{})
		require.NoError(t, err)
		defer locker.Close()
		client := frozen.Client(t)
		store, err = redisstore.New(client, redisstore.Config{})
		require.NoError(t, err)
		defer store.Close()
		watched, err := lock.New(store, lock.Config{})
		require.NoError(t, err)
		defer watched.Close()
		lease, err := locker.Mutex("orders:42").Lock(t.Context())
		require.NoError(t, err)
		defer lease.Unlock(t.Context()) //nolint:errcheck // the lease may have ended

		w := &watchCommand{interval: duration.Flag(interval), count: 8}
		w.views = []view{{server: &connect.Server{Client: client, Store: store}, locker: watched}}
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		begin, ages := time.Now(), []time.Duration{}
		require.NoError(t, w.refreshEach(t.Context(), cmd, "*", func(r *refresh) error {
			v := r.views[0]
			switch n := len(ages); {
			case n == 0:
				require.NoError(t, v.err)
				frozen.Freeze()
			case n < 6:
				require.Error(t, v.err)
				assert.Contains(t, strings.Join(r.lines(80, 24, interval), "\n"), " old: server ")
			case n == 6:
				frozen.Thaw()
			default:
				require.NoError(t, v.err)
			}
			assert.LessOrEqual(t, time.Since(begin), time.Duration(len(ages))*interval+driver.DefaultRequestTimeout)
			ages = append(ages, r.at.Sub(v.at).Round(time.Second))
			return nil
		}))
		assert.Equal(t, []time.Duration{0, 3 * time.Second, 5 * time.Second, 7 * time.Second, 9 * time.Second, 11 * time.Second, 13 * time.Second, 0}, ages)
	})
}
