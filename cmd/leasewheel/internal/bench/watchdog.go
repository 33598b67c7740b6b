//go:build unix

package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/renewal"
)

// watchdogRun measures a fleet that one watchdog keeps alive.
type watchdogRun struct {
	*fleet
	window     time.Duration
	stopMaster bool

	watchdog *renewal.Watchdog

	mu        sync.Mutex // guards the fields below: the watchdog reports from many goroutines
	measuring bool       // renewals count
	closing   bool       // losses do not count
	latency   *latency
	told      *latency         // how long after their end losses were reported
	late      map[string]int64 // renewals after half of the time was over, by node
	lost      map[string]int64 // by node
}

// measure acquires the leases, lets them settle, and fills in the report.
func (r *watchdogRun) measure(ctx context.Context, p *progress, report *renewalReport) (err error) {
	r.latency, r.told = newLatency(), newLatency()
	r.late, r.lost = make(map[string]int64), make(map[string]int64)
	before, goroutines := memory(), runtime.NumGoroutine()
	r.watchdog, err = renewal.New(r.Store, renewal.Config{Observer: &renewal.Observer{Batch: r.batch, Lost: r.loss}})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
		defer cancel()
		r.mu.Lock()
		r.closing = true
		r.mu.Unlock()
		err = errors.Join(err, r.watchdog.Close(closing))
		err = errors.Join(err, r.cleanUp(ctx, p))
	}()
	if err = r.take(ctx, p, r.watch); err != nil {
		return err
	}
	if err = p.wait(ctx, "settling", r.ttl/2); err != nil {
		return err
	}
	return r.measureWindow(ctx, p, report, before, goroutines)
}

// watch puts a granted lease under the watchdog.
func (r *watchdogRun) watch(name, owner string, asked time.Time) error {
	_, err := r.watchdog.Watch(renewal.Spec{Key: name, Owner: owner, TTL: r.ttl, Granted: asked})
	return err
}

// measureWindow measures leases that are in their rhythm.
func (r *watchdogRun) measureWindow(ctx context.Context, p *progress, report *renewalReport, memory int64, goroutines int) error {
	m := newRenewalMeter(r.fleet, memory)
	if err := m.begin(ctx); err != nil {
		return err
	}
	earlier := r.watchdog.Stats()
	r.count(true)
	peak := watchGoroutines()
	var err error
	if r.stopMaster {
		report.Stopped, err = r.waitWithoutMaster(ctx, p)
	} else {
		err = p.wait(ctx, "measuring", r.window)
	}
	most := peak()
	if err != nil {
		return err
	}
	r.count(false)
	later := r.watchdog.Stats()
	figures, err := m.end(ctx, later.Renewed-earlier.Renewed)
	if err != nil {
		return err
	}
	figures.Goroutines = most - goroutines
	figures.Requests = later.Batches - earlier.Batches
	figures.Retried = later.Retried - earlier.Retried
	report.renewalFigures = *figures
	for i, n := range later.Sizes {
		if n -= earlier.Sizes[i]; n > 0 {
			report.Sizes = append(report.Sizes, batchSizes{UpTo: 1 << i, Requests: n})
		}
	}
	r.account(report)
	return nil
}

// account divides the failures between the stopped node and the others.
func (r *watchdogRun) account(report *renewalReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	report.Lateness = r.latency.figures()
	s := report.Stopped
	for node, n := range r.late {
		if s == nil || node != s.Node {
			report.Late += n
		}
	}
	for node, n := range r.lost {
		if s == nil || node != s.Node {
			report.Lost += n
		} else {
			s.Lost = n
		}
	}
	if s != nil {
		s.Told = r.told.figures()
	}
}

// count begins and ends the time in which renewals count.
func (r *watchdogRun) count(measuring bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measuring = measuring
}

// batch is called after every request.
func (r *watchdogRun) batch(b renewal.Batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.measuring {
		return
	}
	for _, lag := range b.Lag {
		r.latency.add(lag)
	}
	for _, left := range b.Remaining {
		if left < r.ttl/2 {
			r.late[b.Group]++
		}
	}
}

// loss is called for every lease that is lost.
func (r *watchdogRun) loss(l *renewal.Lease, _ *renewal.LostError) {
	late := time.Since(l.Until())
	node := r.Store.Group(l.Key(), nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.lost[node]++
		r.told.add(late)
	}
}

// waitWithoutMaster stops a master for one and a half TTLs in the middle of the window.
func (r *watchdogRun) waitWithoutMaster(ctx context.Context, p *progress) (*stoppedMaster, error) {
	process, s, err := r.chooseMaster(ctx)
	if err != nil {
		return nil, err
	}
	pause := r.ttl * 3 / 2
	if err := p.wait(ctx, "measuring", (r.window-pause)/2); err != nil {
		return nil, err
	}
	if err := unix.Kill(process, unix.SIGSTOP); err != nil {
		return nil, fmt.Errorf("the master %s, process %d, cannot be stopped: %w", s.Node, process, err)
	}
	err = p.wait(ctx, "a master is stopped", pause)
	err = errors.Join(err, unix.Kill(process, unix.SIGCONT))
	if err != nil {
		return nil, err
	}
	return s, p.wait(ctx, "measuring", (r.window-pause)/2)
}

// chooseMaster returns the process of the master that has the first lease, and counts its
// leases.
func (r *watchdogRun) chooseMaster(ctx context.Context) (process int, s *stoppedMaster, err error) {
	s = &stoppedMaster{Node: r.Store.Group(r.name(0), nil), Seconds: (r.ttl * 3 / 2).Seconds()}
	for i := range r.size {
		if r.Store.Group(r.name(i), nil) == s.Node {
			s.Leases++
		}
	}
	err = r.cluster().ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		if c.Options().Addr != s.Node {
			return nil
		}
		info, err := c.InfoMap(ctx, "server").Result()
		if err != nil {
			return err
		}
		if process, err = strconv.Atoi(info["Server"]["process_id"]); err != nil {
			return err
		}
		return isLocal(ctx, c, process, info["Server"]["executable"])
	})
	if err == nil && process <= 1 {
		err = fmt.Errorf("the master %s was not found", s.Node)
	}
	return process, s, err
}

// isLocal returns an error unless the server of a client is this machine's process of that number: on
// another machine, or in a container, it is a process of another kind.
func isLocal(ctx context.Context, c *redis.Client, pid int, executable string) error {
	client, err := c.ClientInfo(ctx).Result()
	if err != nil {
		return err
	}
	from, _, _ := net.SplitHostPort(client.Addr)
	to, _, _ := net.SplitHostPort(client.LAddr)
	title, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil { // not Linux, or there is none
		title, _ = exec.CommandContext(ctx, "ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	words := strings.FieldsFunc(string(title), func(r rune) bool { return r == 0 || unicode.IsSpace(r) })
	if from == "" || from != to || len(words) == 0 || filepath.Base(words[0]) != filepath.Base(executable) {
		return fmt.Errorf("the master %s is no process of this machine that --stop-master could stop", c.Options().Addr)
	}
	return nil
}

// watchGoroutines counts the goroutines periodically until the returned function is
// called, which returns the maximum.
func watchGoroutines() (most func() int) {
	const interval = 50 * time.Millisecond
	stop, result := make(chan struct{}), make(chan int)
	go func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for most := 0; ; {
			most = max(most, runtime.NumGoroutine()-1) // without this one
			select {
			case <-ticker.C:
			case <-stop:
				result <- most
				return
			}
		}
	}()
	return func() int {
		close(stop)
		return <-result
	}
}
