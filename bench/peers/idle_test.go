package peers

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/bench"
	rfyiamcool "github.com/rfyiamcool/go-timewheel"
)

// childVariable makes a test binary the child of a benchmark. Its value selects the
// measurement.
const childVariable = "LEASEWHEEL_BENCH_CHILD"

func TestMain(m *testing.M) {
	// This module starts a wheel of its own when it is imported, whose ticks
	// would wake every process that measures something else.
	rfyiamcool.DefaultTimeWheel.Stop()
	if task := os.Getenv(childVariable); task != "" {
		child(strings.Fields(task))
		return
	}
	os.Exit(m.Run())
}

// child measures in a process of its own, so that nothing but the timers counts,
// and prints the result as JSON.
func child(task []string) {
	i := implNamed(task[1])
	switch task[0] {
	case "idle":
		printJSON(idleUsage(i, atoi(task[2]), duration(task[3]), duration(task[4])))
	case "pause":
		pausedChild(i)
	}
}

// BenchmarkIdle measures ten seconds in which nothing is due: with no timeout
// pending, and with a thousand of them a minute away.
func BenchmarkIdle(b *testing.B) {
	each(b, func(b *testing.B, i impl) {
		for _, pending := range []int{0, 1000} {
			// A wheel that visits every tick costs more with a finer one.
			for _, tick := range distinct(i.tick(time.Millisecond), i.tick(defaultTick)) {
				b.Run(fmt.Sprintf("pending=%d/tick=%v", pending, tick), func(b *testing.B) {
					for b.Loop() {
						var used bench.Usage
						runChild(b, &used, "idle", i.name(), strconv.Itoa(pending), tick.String(), idleTime.String())
						b.ReportMetric(float64(used.Switches), "switches")
						b.ReportMetric(float64(used.CPU), "cpu-ns")
						b.ReportMetric(0, "ns/op")
					}
				})
			}
		}
	})
}

const (
	idleTime = 10 * time.Second
	// settledAfter is how long a process takes to become idle: in the first seconds the
	// runtime wakes some thirty times for its heap.
	settledAfter = 5 * time.Second
)

// idleUsage measures the implementation while nothing is due.
func idleUsage(i impl, pending int, tick, length time.Duration) bench.Usage {
	stop := i.idle(pending, tick)
	defer stop()
	time.Sleep(settledAfter)
	before, _ := bench.ReadUsage()
	time.Sleep(length)
	after, _ := bench.ReadUsage()
	return after.Since(before)
}

func (o of[H]) idle(pending int, tick time.Duration) (stop func()) {
	t := o.open(tick)
	for i := range pending {
		// A little apart, so that they fill buckets and not one bucket.
		t.schedule(time.Minute+time.Duration(i)*5*time.Millisecond, nothing)
	}
	return t.close
}

func implNamed(name string) impl {
	for _, i := range impls {
		if i.name() == name {
			return i
		}
	}
	panic("no implementation is named " + name)
}

// childCommand starts this binary again, to do a task.
func childCommand(b *testing.B, task ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self)
	// Without it the runtime of every process wakes about five times a second to read how
	// many processors it may use.
	cmd.Env = append(os.Environ(), childVariable+"="+strings.Join(task, " "), "GODEBUG=updatemaxprocs=0")
	cmd.Stderr = os.Stderr
	return cmd
}

// runChild runs a task in a child and reads its result.
func runChild(b *testing.B, result any, task ...string) {
	out, err := childCommand(b, task...).Output()
	if err == nil {
		err = json.Unmarshal(out, result)
	}
	if err != nil {
		b.Fatalf("child %v: %v", task, err)
	}
}

func printJSON(v any) {
	if err := json.NewEncoder(os.Stdout).Encode(v); err != nil {
		panic(err)
	}
}

func atoi(s string) int { return must(strconv.Atoi(s)) }

func duration(s string) time.Duration { return must(time.ParseDuration(s)) }
