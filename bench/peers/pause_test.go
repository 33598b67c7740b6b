package peers

import (
	"bufio"
	"encoding/json"
	"os"
	"syscall"
	"testing"
	"time"
)

// pauseTime is how long BenchmarkPause stops the process.
const pauseTime = 3 * time.Second

// A pauseResult is how late three tasks ran: one that came due before the stop,
// one during it, and one after it.
type pauseResult struct{ Before, During, After time.Duration }

// BenchmarkPause stops the process for three seconds, as a suspended machine or
// a debugger does. during-late-ns is how late a task ran that came due
// meanwhile, counted from the end of the stop; shift-ns by how much later one ran
// that came due well after it, compared with one that came due before: a timer
// that counts ticks shifts by the whole stop.
func BenchmarkPause(b *testing.B) {
	each(b, func(b *testing.B, i impl) {
		for b.Loop() {
			r := paused(b, i)
			b.ReportMetric(float64(r.During), "during-late-ns")
			b.ReportMetric(float64(r.After-r.Before), "shift-ns")
			b.ReportMetric(0, "ns/op")
		}
	})
}

// paused runs a child and stops it a second after it has begun.
func paused(b *testing.B, i impl) (r pauseResult) {
	cmd := childCommand(b, "pause", i.name())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if _, err = lines.ReadString('\n'); err != nil {
		b.Fatal(err)
	}
	time.Sleep(time.Second)
	stopped := time.Now()
	cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(pauseTime)
	took := time.Since(stopped)
	cmd.Process.Signal(syscall.SIGCONT)
	if err = json.NewDecoder(lines).Decode(&r); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		b.Fatal(err)
	}
	// The one in the middle came due two seconds after the child had begun,
	// and could not run before the stop was over.
	r.During -= time.Second + took - 2*time.Second
	return r
}

// pausedChild schedules the measured tasks; its parent stops it.
func pausedChild(i impl) {
	late := make(chan [2]time.Duration, 3)
	schedule, stop := i.start(i.tick(defaultTick))
	defer stop()
	start := time.Now()
	for n, d := range []time.Duration{500 * time.Millisecond, 2 * time.Second, 6 * time.Second} {
		schedule(d, func() { late <- [2]time.Duration{time.Duration(n), time.Since(start) - d} })
	}
	os.Stdout.WriteString("begun\n")
	var all [3]time.Duration
	for range all {
		l := <-late
		all[l[0]] = l[1]
	}
	printJSON(pauseResult{all[0], all[1], all[2]})
}
