package delayqueue_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Short names for common types.
type (
	config   = delayqueue.Config
	worker   = delayqueue.WorkerConfig
	message  = delayqueue.Message
	delivery = delayqueue.Delivery
	report   = delayqueue.Report
)

// mails is the name of the queue in most tests.
const mails = "mails"

// virtual reports whether the test is in a bubble, whose time begins in the year 2000.
func virtual() bool { return time.Now().Year() < 2020 }

// open returns the queue called mails, over client, closed at the end of t. Outside a bubble,
// its requests have limits that only a server that hangs reaches.
func open(t testing.TB, client redis.UniversalClient, c config) *delayqueue.Queue {
	t.Helper()
	return openNamed(t, client, mails, c)
}

func openNamed(t testing.TB, client redis.UniversalClient, name string, c config) *delayqueue.Queue {
	t.Helper()
	store, err := redisstore.New(client, redisstore.Config{})
	require.NoError(t, err)
	if !virtual() {
		c.RequestTimeout, c.RetryFor = cmp.Or(c.RequestTimeout, time.Minute), cmp.Or(c.RetryFor, time.Minute)
	}
	q, err := delayqueue.New(store, name, c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		assert.NoError(t, q.Shutdown(ctx))
		assert.NoError(t, store.Close())
	})
	return q
}

// embedded returns a client of a server in the test's process, with the test's clock.
func embedded(t testing.TB) *redis.Client { return locktest.Start(t).Client(t) }

// TestOnEveryServer runs tests on each kind of server, one after the other on one of a kind.
// The bulky ones are about portions of requests, for which the server in the process, on
// which most other tests run, is like any other.
func TestOnEveryServer(t *testing.T) {
	tests := map[string]func(t *testing.T, client redis.UniversalClient){
		"PutAndHandle": putAndHandle, "DuplicatesAreReported": duplicatesAreReported, "Full": full, "PutTx": putInTx,
	}
	bulky := map[string]func(t *testing.T, client redis.UniversalClient){
		"PutAllInPortions": putAllInPortions, "ListOfMany": listOfMany, "ListClipsPayloads": listClipsPayloads,
		"DeadLettersAreListed": deadLettersAreListed, "LargeDeadLetters": largeDeadLetters,
	}
	run := func(t *testing.T, client redis.UniversalClient, flush func(), tests map[string]func(t *testing.T, client redis.UniversalClient)) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				flush()
				test(t, client)
			})
		}
	}
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		server := locktest.Start(t)
		run(t, server.Client(t), server.DeleteAll, tests)
	})
	maps.Copy(bulky, tests)
	t.Run("single", func(t *testing.T) {
		t.Parallel()
		client := redistest.Start(t, redistest.Config{}).Client(t)
		run(t, client, func() { require.NoError(t, client.FlushAll(t.Context()).Err()) }, bulky)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		client := clusterClient(t, redistest.StartCluster(t, redistest.ClusterConfig{}))
		run(t, client, func() {
			require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, master *redis.Client) error {
				return master.FlushAll(ctx).Err()
			}))
		}, bulky)
	})
}

func put(t testing.TB, q *delayqueue.Queue, messages ...message) {
	t.Helper()
	receipts, err := q.PutAll(t.Context(), messages)
	require.NoError(t, err)
	for _, r := range receipts {
		require.False(t, r.Duplicate, r.ID)
	}
}

// work runs a worker until the test's end, or until stop is called, which waits for the
// worker. Outside a bubble, its leases do not end during a test.
func work(t testing.TB, q *delayqueue.Queue, h delayqueue.Handler, c worker) (stop func()) {
	t.Helper()
	if !virtual() {
		c.TTL = cmp.Or(c.TTL, time.Hour)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- q.Work(ctx, h, c) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return stop
}

// log collects the workers' reports.
type log struct {
	mu      sync.Mutex
	reports []report
	more    chan struct{} // closed and replaced with each report
}

func newLog() *log { return &log{more: make(chan struct{})} }

func (l *log) add(r report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reports = append(l.reports, r)
	close(l.more)
	l.more = make(chan struct{})
}

func (l *log) all() []report {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reports)
}

// await waits for n reports and returns them.
func (l *log) await(t testing.TB, n int) []report {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		l.mu.Lock()
		reports, more := slices.Clone(l.reports), l.more
		l.mu.Unlock()
		if len(reports) >= n {
			return reports
		}
		select {
		case <-more:
		case <-limit:
			require.FailNow(t, "no report", "%d of %d came", len(reports), n)
		}
	}
}

// awaitID waits for the report of a message.
func (l *log) awaitID(t testing.TB, id string) {
	t.Helper()
	for n := 1; ; {
		reports := l.await(t, n)
		if slices.ContainsFunc(reports, func(r report) bool { return r.ID == id }) {
			return
		}
		n = len(reports) + 1
	}
}

// outcomes returns "id outcome" of each report.
func outcomes(reports []report) []string {
	var all []string
	for _, r := range reports {
		all = append(all, fmt.Sprint(r.ID, " ", r.Outcome))
	}
	return all
}

var errFailed = errors.New("it did not work out")

// succeed is a handler.
func succeed(context.Context, *delivery) error { return nil }

// whole checks that every message of the queue called mails is in one place, with all its
// parts, and returns the ids by place. It reads one consistent state.
func whole(t testing.TB, client redis.UniversalClient) map[string][]string {
	t.Helper()
	ctx := context.Background()
	zsets, hashes := make(map[string]*redis.StringSliceCmd), make(map[string]*redis.StringSliceCmd)
	_, err := client.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		for _, place := range []string{"due", "leased", "dead"} {
			zsets[place] = tx.ZRange(ctx, "leasewheel_queue_"+place+":{mails}", 0, -1)
		}
		for _, part := range []string{"payload", "record"} {
			hashes[part] = tx.HKeys(ctx, "leasewheel_queue_"+part+":{mails}")
		}
		return nil
	})
	require.NoError(t, err)
	places, where := make(map[string][]string), make(map[string]string)
	for place, ids := range zsets {
		for _, id := range ids.Val() {
			assert.Empty(t, where[id], "%q is %s too", id, place)
			where[id] = place
			places[place] = append(places[place], id)
		}
	}
	for part, ids := range hashes {
		assert.ElementsMatch(t, slices.Collect(maps.Keys(where)), ids.Val(), part)
	}
	return places
}

// eventually waits for a state without a notification.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	require.Eventually(t, is, time.Minute, 20*time.Millisecond, what)
}

// logTo returns a logger that writes to w, one record at a time.
func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// safeBuilder is a builder that is safe for concurrent use.
type safeBuilder struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *safeBuilder) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *safeBuilder) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
