package peers

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/wheel"
)

// BenchmarkEmbedded arms timers that are idle, all of them, and then cancels all:
// from one goroutine, and from as many as there are processors, each with timers
// of its own. Servers limit the time of requests this way: a timer is armed by a request and
// cancelled by its reply. Rounds follow each other without a pause.
func BenchmarkEmbedded(b *testing.B) {
	for _, n := range []int{1000, 100_000, million} {
		for name, producers := range map[string]int{"one": 1, "all": runtime.GOMAXPROCS(0)} {
			b.Run(fmt.Sprintf("impl=wheel/timers=%d/producers=%s", n, name), func(b *testing.B) {
				w := must(wheel.New(wheel.Config{Tick: defaultTick, Buckets: buckets, Logger: discard}))
				defer w.Stop()
				timers := newWheelTimers(w, n)
				embedded(b, n, producers, func(i int) { timers[i].Arm(delay(i)) }, func(i int) { timers[i].Cancel() })
			})
			b.Run(fmt.Sprintf("impl=runtime/timers=%d/producers=%s", n, name), func(b *testing.B) {
				timers := make([]*time.Timer, n)
				for i := range timers {
					timers[i] = time.AfterFunc(time.Hour, nothing)
					timers[i].Stop()
				}
				embedded(b, n, producers, func(i int) { timers[i].Reset(delay(i)) }, func(i int) { timers[i].Stop() })
			})
		}
	}
}

// cost is the time of a phase.
type cost struct{ wall, cpu time.Duration }

func (c *cost) add(d cost) { c.wall, c.cpu = c.wall+d.wall, c.cpu+d.cpu }

func embedded(b *testing.B, n, producers int, arm, cancel func(i int)) {
	runtime.GC()
	rounds := max(2*million/n, 1)
	share := n / producers
	// Phases begin together, so no producer arms while another cancels. Each is timed by
	// itself.
	phase := func(do func(i int)) cost {
		var ready, done sync.WaitGroup
		begin := make(chan struct{})
		for p := range producers {
			ready.Add(1)
			done.Go(func() {
				ready.Done()
				<-begin
				for range rounds {
					for i := p * share; i < (p+1)*share; i++ {
						do(i)
					}
				}
			})
		}
		ready.Wait()
		before, start := usage(b), time.Now()
		close(begin)
		done.Wait()
		return cost{time.Since(start), usage(b).Since(before).CPU}
	}
	both := func(i int) { arm(i); cancel((i/share)*share + (i%share+share/2)%share) }
	var armed, pairs cost
	ops := 0
	for b.Loop() {
		pairs.add(phase(both))
		for i := range n {
			cancel(i)
		}
		all := rounds
		rounds = 1
		for range all {
			armed.add(phase(arm))
			for i := range n {
				cancel(i)
			}
		}
		rounds = all
		ops += rounds * share * producers
	}
	b.ReportMetric(float64(armed.wall)/float64(ops), "arm-ns/op")
	b.ReportMetric(float64(armed.cpu)/float64(ops), "arm-cpu-ns/op")
	b.ReportMetric(float64(pairs.wall)/float64(ops), "pair-ns/op")
	b.ReportMetric(float64(pairs.cpu)/float64(ops), "pair-cpu-ns/op")
	b.ReportMetric(0, "ns/op")
}
