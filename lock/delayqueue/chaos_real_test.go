//go:build real && unix

package delayqueue_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// Worker processes are killed and frozen at random, and their work is checked: each
// message was handled, no two processes had one at the same time by their leases, and
// none was handled again after it was done.

const (
	// chaosWorker is the environment variable of a process started by this test binary.
	// It holds the server's URL.
	chaosWorker = "LEASEWHEEL_QUEUE_WORKER"
	// chaosReady is the line of a process that a SIGTERM ends gracefully from then on.
	chaosReady = "ready"
	// chaosTTL is the lease of a message.
	chaosTTL = time.Second
	// chaosRate is how many messages are due per second.
	chaosRate = 1000
	// chaosProcesses is how many processes work at a time.
	chaosProcesses = 4
	// notice is how long a resumed process has to report its losses before it may be
	// killed.
	notice = time.Second
)

// monotonic returns an instant of the clock that all processes of a machine share.
func monotonic() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err)
	}
	return at.Nano()
}

// workInChaos is a worker process. It writes a line when a handler begins, when it ends,
// and when the server has its outcome.
func workInChaos(url string) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the test is gone
	}()
	store, err := redisstore.Open(url, redisstore.Config{})
	if err != nil {
		return err
	}
	q, err := delayqueue.New(store, mails, config{RequestTimeout: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println(chaosReady)
	return q.Work(ctx, chaosHandler, worker{
		Concurrency: 32,
		TTL:         chaosTTL,
		MaxAttempts: -1,
		Backoff:     delayqueue.Exponential(10*time.Millisecond, 100*time.Millisecond),
		Report: func(r report) {
			fmt.Fprintf(os.Stdout, "told %s %d %d 0 0\n", r.ID, r.Token, r.Outcome)
		},
	})
}

func chaosHandler(ctx context.Context, d *delivery) (err error) {
	until := func() int64 { return monotonic() + int64(time.Until(d.Until())) }
	fmt.Fprintf(os.Stdout, "begin %s %d %d %d %d\n", d.ID, d.Token, monotonic(), int64(d.Late()), until())
	work := rand.N(20 * time.Millisecond)
	switch rand.N(200) {
	case 0:
		work = chaosTTL + rand.N(chaosTTL) // renewals keep the lease
	case 1, 2, 3:
		err = errFailed
	}
	select {
	case <-time.After(work):
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	// The lease may have ended while the process was frozen.
	end := min(monotonic(), until())
	failed := int64(0)
	if err != nil {
		failed = 1
	}
	fmt.Fprintf(os.Stdout, "end %s %d %d %d 0\n", d.ID, d.Token, end, failed)
	return err
}

// stay is a message's time with a worker.
type stay struct {
	token      int64
	process    int
	begin, end int64 // monotonic; end is that of the lease, if it ended before
	until      int64 // the end of the lease without a renewal
	late       time.Duration
	succeeded  bool
	done       bool // the server has the outcome "done"
}

// chaos is a run.
type chaos struct {
	testing.TB
	url   string
	count int

	kills, freezes int

	mu      sync.Mutex
	stays   map[string][]*stay
	byToken map[int64]*stay // guarded by mu, as stays and their fields are

	deaths  map[int]int64 // of processes that were killed, by number
	frosts  map[int]int64 // the last time that they were frozen
	started int
}

// process is a worker process.
type process struct {
	*exec.Cmd
	number int
	stdin  io.Closer
	busy   bool // something is being done to it
	// ready is closed once the process handles SIGTERM, or all output was read.
	ready chan struct{}
	// read is closed once all output was read, which must be before Wait.
	read chan struct{}
}

func (c *chaos) start() *process {
	c.started++
	p := &process{Cmd: exec.Command(os.Args[0]), number: c.started, ready: make(chan struct{}), read: make(chan struct{})}
	p.Env = append(os.Environ(), chaosWorker+"="+c.url)
	p.Stderr = os.Stderr
	stdin, err := p.StdinPipe()
	require.NoError(c, err)
	p.stdin = stdin
	stdout, err := p.StdoutPipe()
	require.NoError(c, err)
	require.NoError(c, p.Start())
	go func() {
		defer close(p.read)
		c.read(p, stdout)
	}()
	return p
}

// read records the output of a process.
func (c *chaos) read(p *process, stdout io.Reader) {
	isReady := sync.OnceFunc(func() { close(p.ready) })
	defer isReady()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == chaosReady {
			isReady()
			continue
		}
		var (
			what, id           string
			token, a, b, until int64
		)
		if _, err := fmt.Sscan(lines.Text(), &what, &id, &token, &a, &b, &until); err != nil {
			continue // a line cut short by the kill
		}
		c.mu.Lock()
		s := c.byToken[token]
		switch {
		case what == "begin":
			if s != nil {
				c.Errorf("broken promise: token %d was given twice", token)
			}
			s = &stay{token: token, process: p.number, begin: a, late: time.Duration(b), until: until}
			c.byToken[token] = s
			c.stays[id] = append(c.stays[id], s)
		case s == nil: // given back before it began
		case what == "end":
			s.end, s.succeeded = a, b == 0
		case what == "told":
			s.done = delayqueue.Outcome(a) == delayqueue.Done
		}
		c.mu.Unlock()
	}
}

// disturb kills or freezes processes until stop is closed, at least one each, and returns those
// that still run.
func (c *chaos) disturb(stop <-chan struct{}) []*process {
	processes := make([]*process, chaosProcesses)
	for i := range processes {
		processes[i] = c.start()
	}
	recovered := make(chan *process, chaosProcesses)
	frozen := 0
	var thaw sync.WaitGroup
	for tick := time.NewTicker(250 * time.Millisecond); ; {
		select {
		case p := <-recovered:
			p.busy = false
			frozen--
			continue
		case <-tick.C:
		case <-stop:
			tick.Stop()
			thaw.Wait()
			return processes
		}
		i := rand.N(len(processes))
		p := processes[i]
		switch {
		case p.busy:
		case c.kills == 0, c.freezes > 0 && rand.N(2) == 0:
			c.kill(p)
			processes[i] = c.start()
		case frozen < chaosProcesses/2:
			frozen++
			p.busy = true
			c.freezes++
			c.frosts[p.number] = monotonic()
			require.NoError(c, p.Process.Signal(syscall.SIGSTOP))
			thaw.Go(func() {
				time.Sleep(chaosTTL/2 + rand.N(2*chaosTTL))
				assert.NoError(c, p.Process.Signal(syscall.SIGCONT))
				time.Sleep(notice)
				recovered <- p
			})
		}
	}
}

func (c *chaos) kill(p *process) {
	c.kills++
	require.NoError(c, p.Process.Kill())
	<-p.read
	c.deaths[p.number] = monotonic()
	_ = p.Wait()
	_ = p.stdin.Close()
}

// endure handles n messages under kills and freezes, and checks the result.
func endure(t testing.TB, n int) *chaos {
	t.Helper()
	server := redistest.Start(t, redistest.Config{TCP: true})
	client := server.Client(t)
	q := open(t, client, config{})
	c := &chaos{TB: t, url: server.URL(), count: n,
		stays: make(map[string][]*stay), byToken: make(map[int64]*stay), deaths: make(map[int]int64), frosts: make(map[int]int64)}

	spread := time.Duration(n) * time.Second / chaosRate
	putting := make(chan error, 1)
	go func() { putting <- putSpread(q, n, spread) }()

	stop := make(chan struct{})
	go func() {
		time.Sleep(spread)
		close(stop)
	}()
	processes := c.disturb(stop)
	require.NoError(t, <-putting)
	require.Eventually(t, func() bool {
		stats, err := q.Stats(t.Context())
		return err == nil && stats.Delayed+stats.Ready+stats.Leased == 0
	}, spread/2+time.Minute, 20*time.Millisecond, "messages are left: %v", whole(t, client))
	for _, p := range processes {
		<-p.ready // the last one that was started may not have run yet
		require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	}
	for _, p := range processes {
		<-p.read
		require.NoError(t, p.Wait(), "a worker's graceful end")
	}
	assert.Empty(t, whole(t, client))
	c.check()
	return c
}

// putSpread puts n messages that are due one after the other within spread, some of them
// when they are due and some long before.
func putSpread(q *delayqueue.Queue, n int, spread time.Duration) error {
	begun := time.Now()
	for i := 0; i < n; {
		var messages []message
		for range min(500, n-i) {
			due := begun.Add(time.Duration(i) * spread / time.Duration(n))
			messages = append(messages, message{ID: strconv.Itoa(i), Payload: []byte("mail"), Due: due})
			i++
		}
		rand.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
		if _, err := q.PutAll(context.Background(), messages); err != nil {
			return err
		}
		if rand.N(4) == 0 { // put the next ones when some of them are due
			time.Sleep(time.Until(messages[0].Due))
		}
	}
	return nil
}

// check checks the recorded stays.
func (c *chaos) check() {
	again, handled := 0, 0
	for i := range c.count {
		id := strconv.Itoa(i)
		stays := c.stays[id]
		slices.SortFunc(stays, func(a, b *stay) int { return int(a.token - b.token) })
		succeeded := false
		var before *stay
		for _, s := range stays {
			if s.end == 0 { // it ended with its process
				died, killed := c.deaths[s.process]
				if !killed {
					c.Errorf("message %s: process %d has lost it", id, s.process)
				}
				// On a busy machine it may have lost its lease earlier, and died before
				// it reported that.
				s.end = min(died, s.until)
				if frost := c.frosts[s.process]; frost > s.begin {
					s.end = min(frost, s.end) // its lease since then is unknown
				}
			}
			if before != nil {
				again++
				if s.begin < before.end {
					c.Errorf("broken promise: message %s: process %d had it until %d, process %d from %d on", id, before.process, before.end, s.process, s.begin)
				}
				if before.done {
					c.Errorf("broken promise: message %s: handled again although it was done", id)
				}
			}
			succeeded = succeeded || s.succeeded
			before = s
			handled++
		}
		if !succeeded {
			c.Errorf("broken promise: message %s: handled by nobody, in %d attempts", id, len(stays))
		}
	}
	c.Logf("%d messages, %d processes of which %d were killed, %d freezes; %d messages handled %d times, %d of them again",
		c.count, c.started, c.kills, c.freezes, c.count, handled, again)
	c.Logf("lateness of their first handling: %s", percentiles(c.lateness()))
}

// lateness returns how late each message was handled for the first time, also if earlier
// claimants were dead or frozen.
func (c *chaos) lateness() []time.Duration {
	var all []time.Duration
	for _, stays := range c.stays {
		all = append(all, stays[0].late)
	}
	slices.Sort(all)
	return all
}

func percentiles(sorted []time.Duration) string {
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v, p99.9 %v, max %v", percentile(sorted, 50), percentile(sorted, 90),
		percentile(sorted, 99), percentile(sorted, 99.9), percentile(sorted, 100))
}

func TestWorkersKilledAndFrozen(t *testing.T) {
	c := endure(t, 5000)
	assert.Positive(t, c.kills)
	assert.Positive(t, c.freezes)
}

// BenchmarkWorkersKilledAndFrozen is the same test at any size:
//
//	go test -tags real -run '^$' -bench KilledAndFrozen -benchtime 100000x -timeout 30m ./lock/delayqueue
func BenchmarkWorkersKilledAndFrozen(b *testing.B) {
	c := endure(b, b.N)
	late := c.lateness()
	b.ReportMetric(float64(percentile(late, 50).Milliseconds()), "p50-late-ms")
	b.ReportMetric(float64(percentile(late, 99).Milliseconds()), "p99-late-ms")
	b.ReportMetric(float64(percentile(late, 99.9).Milliseconds()), "p99.9-late-ms")
	b.ReportMetric(float64(c.kills), "kills")
	b.ReportMetric(float64(c.freezes), "freezes")
}
