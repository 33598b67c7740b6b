package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/quorum"
)

// checkTTL is a TTL that no round trip on a busy machine comes near.
const checkTTL = 10 * time.Minute

// topics returns "severity topic" of each finding.
func topics(r driver.Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, fmt.Sprintf("%v %s", f.Severity, f.Topic))
	}
	return all
}

// examine examines the nodes until it finds what is wanted, in any order: a message to a process
// that is held up for 2 s is a finding, too.
func examine(t *testing.T, store *quorum.Store, wanted ...string) (report driver.Report) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		var err error
		report, err = store.Check(context.Background(), driver.CheckOptions{TTL: checkTTL})
		require.NoError(t, err)
		assert.ElementsMatch(t, wanted, topics(report), "%+v", report.Findings)
	}, time.Minute, time.Millisecond)
	return report
}

// The servers of the nodes are examined and compared. Those of the tests share a host.
func TestCheckComparesTheNodes(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	var clients []redis.UniversalClient
	for range 3 {
		server := redistest.Start(t, redistest.Config{AOF: true, Directives: []string{"appendfsync always"}})
		servers, clients = append(servers, server), append(clients, server.Client(t))
	}
	store := assemble(t, quorum.Config{NodeTimeout: time.Minute}, clients...)
	report := examine(t, store, "warning node", "warning node", "warning node")
	assert.Len(t, report.Servers, 3)
	assert.Contains(t, report.Findings[0].Found, "share the host")

	require.NoError(t, servers[1].Client(t).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	examine(t, store, "warning eviction", "warning node", "warning node", "warning node")

	servers[2].Kill()
	examine(t, store, "warning answer", "warning eviction", "warning node")
	servers[1].Kill()
	report = examine(t, store, "error answer", "error answer")
	assert.Contains(t, report.Findings[0].Promise, "1 of 3 nodes are left, and 2 are needed")
	servers[0].Kill()
	_, err := store.Check(t.Context(), driver.CheckOptions{TTL: checkTTL})
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NoError(t, store.Close())
	_, err = store.Check(t.Context(), driver.CheckOptions{})
	require.ErrorIs(t, err, driver.ErrNotDone)
}

// One server under two names is found before the first lock.
func TestCheckFindsOneServerUnderTwoNames(t *testing.T) {
	t.Parallel()
	twin := redistest.Start(t, redistest.Config{})
	other := redistest.Start(t, redistest.Config{})
	store := assemble(t, quorum.Config{NodeTimeout: time.Minute}, twin.Client(t), other.Client(t), redistest.StartProxy(t, twin).Client(t))
	report := examine(t, store, "error node", "warning persistence", "warning persistence", "warning persistence", "warning node", "warning node")
	assert.Contains(t, report.Findings[0].Found, "are one server")
	assert.Contains(t, report.Findings[0].Found, "node 0")
	assert.Contains(t, report.Findings[0].Found, "node 2")
}

// examined is a node with an invented report.
type examined struct {
	driver.Store
	report driver.Report
	err    error
}

func (e *examined) Check(context.Context, driver.CheckOptions) (driver.Report, error) {
	return e.report, e.err
}

// What differs between the nodes' reports.
func TestCheckOfDifferentNodes(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	good := func(i int) driver.Server {
		return driver.Server{
			Address: fmt.Sprintf("10.0.0.%d:6379", i), ID: fmt.Sprint("id ", i), Role: "master",
			RoundTrip: ms, WorstRoundTrip: 2 * ms, Ahead: 100 * ms, AheadError: ms,
		}
	}
	for name, test := range map[string]struct {
		change func(s *driver.Server) // of node 1
		want   []string
		found  string
	}{
		"alike":                {func(*driver.Server) {}, nil, ""},
		"almost apart":         {func(s *driver.Server) { s.Ahead = 602 * ms }, nil, ""},
		"apart":                {func(s *driver.Server) { s.Ahead = 603 * ms }, []string{"warning clock", "warning clock"}, "503ms apart"},
		"of an unknown clock":  {func(s *driver.Server) { s.Ahead, s.AheadError = time.Hour, 0 }, nil, ""},
		"slow once":            {func(s *driver.Server) { s.WorstRoundTrip = 125 * ms }, []string{"warning latency"}, "125ms"},
		"slow":                 {func(s *driver.Server) { s.RoundTrip, s.WorstRoundTrip = 125*ms, 130*ms }, []string{"error latency"}, "130ms"},
		"on one host":          {func(s *driver.Server) { s.Address = "10.0.0.0:6380" }, []string{"warning node"}, "share the host 10.0.0.0"},
		"one server":           {func(s *driver.Server) { s.ID = "id 0"; s.Address = "10.0.0.0:6380" }, []string{"error node"}, "one server"},
		"of unknown identity":  {func(s *driver.Server) { s.ID = "" }, nil, ""},
		"of unknown addresses": {func(s *driver.Server) { s.Address = "the sentinels' master" }, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, stores := booths(3)
				for i := range stores {
					server := good(i)
					if i == 1 {
						test.change(&server)
					}
					stores[i] = &examined{stores[i], driver.Report{Servers: []driver.Server{server}}, nil}
				}
				report, err := over(t, quorum.Config{NodeTimeout: 250 * ms, LooseTokens: true}, stores...).Check(t.Context(), driver.CheckOptions{})
				require.NoError(t, err)
				assert.Equal(t, test.want, topics(report), "%+v", report.Findings)
				if test.found != "" {
					assert.Contains(t, report.Findings[0].Found, test.found)
				}
			})
		})
	}
}

// A store that cannot examine its servers is a note; nodes that all fail are an error.
func TestCheckOfNodesThatCannot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores := booths(3)
		report, err := over(t, quorum.Config{LooseTokens: true}, stores...).Check(t.Context(), driver.CheckOptions{})
		require.NoError(t, err)
		assert.Equal(t, []string{"note node", "note node", "note node"}, topics(report))
		broken := errors.New("broken")
		for i := range stores {
			stores[i] = &examined{stores[i], driver.Report{}, fmt.Errorf("node: %w: %w: \x1b[2J%s", broken, lock.ErrUnavailable, strings.Repeat("é", 10_000))}
		}
		_, err = over(t, quorum.Config{LooseTokens: true}, stores...).Check(t.Context(), driver.CheckOptions{})
		require.ErrorIs(t, err, broken)

		stores[0] = &examined{stores[0], driver.Report{}, nil}
		report, err = over(t, quorum.Config{LooseTokens: true}, stores...).Check(t.Context(), driver.CheckOptions{})
		require.NoError(t, err)
		require.Equal(t, []string{"error answer", "error answer"}, topics(report))
		assert.Less(t, len(report.Findings[0].Found), 500)
		assert.NotContains(t, report.Findings[0].Found, "\x1b")
	})
}

// checking is a node with a check of its own.
type checking struct {
	driver.Store
	check func(context.Context) (driver.Report, error)
}

func (c *checking) Check(ctx context.Context, _ driver.CheckOptions) (driver.Report, error) {
	return c.check(ctx)
}

// A check that panics, or ends its goroutine, is a finding.
func TestCheckThatPanics(t *testing.T) {
	for name, check := range map[string]func(context.Context) (driver.Report, error){
		"panic":  func(context.Context) (driver.Report, error) { panic("oops") },
		"Goexit": func(context.Context) (driver.Report, error) { runtime.Goexit(); return driver.Report{}, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, stores := booths(3)
				stores[0] = &checking{stores[0], check}
				report, err := over(t, quorum.Config{}, stores...).Check(t.Context(), driver.CheckOptions{})
				require.NoError(t, err)
				assert.Equal(t, []string{"warning answer", "note node", "note node"}, topics(report))
			})
		})
	}
}

// A check ends with its caller's context, and with Close.
func TestCheckEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, stores := booths(3)
		for i := range stores {
			stores[i] = &checking{stores[i], func(ctx context.Context) (driver.Report, error) {
				<-ctx.Done()
				return driver.Report{}, ctx.Err()
			}}
		}
		store := over(t, quorum.Config{NodeTimeout: nodeTimeout, LooseTokens: true}, stores...)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		_, err := store.Check(ctx, driver.CheckOptions{})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, time.Second, time.Since(begin))

		ended := make(chan error)
		go func() {
			_, err := store.Check(t.Context(), driver.CheckOptions{})
			ended <- err
		}()
		synctest.Wait()
		begin = time.Now()
		go func() { assert.NoError(t, store.Close()) }()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.LessOrEqual(t, time.Since(begin), 2*nodeTimeout)
	})
}

// known is a node whose server has an address.
type known struct {
	*booth
	checked atomic.Bool
}

func (k *known) Check(context.Context, driver.CheckOptions) (driver.Report, error) {
	defer k.checked.Store(true)
	return driver.Report{Servers: []driver.Server{{Address: "192.0.2.1:6379"}}}, nil
}

// lookup is the context of a check whose lookup of the node's host lasts until the end of done.
type lookup struct {
	context.Context
	node  *known
	begun chan struct{}
	done  chan struct{}
}

func (l lookup) Deadline() (time.Time, bool) {
	if l.node.checked.Load() {
		l.begun <- struct{}{}
		<-l.done
	}
	return l.Context.Deadline()
}

// Close does not wait for the lookups of the nodes' hosts.
func TestCloseBesideALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := &known{booth: newBooth()}
		store, err := quorum.New([]driver.Store{node, newBooth(), newBooth()}, quorum.Config{})
		require.NoError(t, err)
		ctx := lookup{t.Context(), node, make(chan struct{}), make(chan struct{})}
		checked := make(chan error)
		go func() {
			_, err := store.Check(ctx, driver.CheckOptions{})
			checked <- err
		}()
		<-ctx.begun
		closed := make(chan error, 1)
		go func() { closed <- store.Close() }()
		synctest.Wait()
		assert.Len(t, closed, 1)
		close(ctx.done)
		require.NoError(t, <-checked)
		require.NoError(t, <-closed)
	})
}
