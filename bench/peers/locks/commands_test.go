package locks

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	"github.com/leasewheel/leasewheel/bench/contention"
	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
	"github.com/redis/go-redis/v9"
)

// counter counts what a server and this process do between the two edges of a measurement.
type counter struct {
	impl   impl
	ctx    context.Context
	client *redis.Client
	at     []contention.Calls // edges
	used   []time.Duration    // the server's CPU, at the edges
	spent  []spent            // this process', at the edges
}

// spent is what a process pays beside its CPU time.
type spent struct {
	objects, reads, writes uint64
	wakeUps                int64
}

func (i impl) count(t testing.TB, server *redistest.Server) *counter {
	return &counter{impl: i, ctx: t.Context(), client: server.Client(t)}
}

func (c *counter) edge() error {
	calls, err := contention.ReadCalls(c.ctx, c.client)
	if err != nil {
		return err
	}
	used, err := contention.ReadCPU(c.ctx, c.client)
	if err != nil {
		return err
	}
	c.at, c.used, c.spent = append(c.at, calls), append(c.used, used), append(c.spent, readSpent())
	return nil
}

// readSpent leaves out system calls where /proc does not count them.
func readSpent() (s spent) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	s.objects = memory.Mallocs
	usage, _ := bench.ReadUsage()
	s.wakeUps = usage.Switches
	text, _ := os.ReadFile("/proc/self/io")
	for line := range strings.Lines(string(text)) {
		fmt.Sscanf(line, "syscr: %d", &s.reads)
		fmt.Sscanf(line, "syscw: %d", &s.writes)
	}
	return s
}

// budget reports what an operation has cost the server, each command by itself and a script
// with what it calls, and this process beside its CPU time.
func (c *counter) budget(b *testing.B, each float64, operation string) {
	for name, call := range c.at[1].Since(c.at[0]) {
		b.ReportMetric(float64(call.Took)/each, name+"-ns/"+operation)
	}
	before, now := c.spent[0], c.spent[1]
	b.ReportMetric(float64(now.objects-before.objects)/each, "objects/"+operation)
	b.ReportMetric(float64(now.reads-before.reads+now.writes-before.writes)/each, "system-calls/"+operation)
	b.ReportMetric(float64(now.wakeUps-before.wakeUps)/each, "wake-ups/"+operation)
}

// cpu returns how much CPU time the server has used.
func (c *counter) cpu() time.Duration { return c.used[1] - c.used[0] }

// split returns how many commands clients have sent, and how many scripts have called.
func (c *counter) split() (commands, inner float64) {
	sent, called := c.at[1].Since(c.at[0]).Split(c.impl.sent)
	return float64(sent), float64(called)
}
