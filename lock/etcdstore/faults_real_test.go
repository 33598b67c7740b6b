//go:build real && unix

package etcdstore

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var benchTime = flag.Duration("time", 30*time.Second, "how long TestFaultBench breaks a cluster")

// TestFaultBench breaks a cluster in ways drawn at random, for so long.
func TestFaultBench(t *testing.T) {
	b := startBench(t, 4)
	b.progresses(20, "intact")
	b.renews(3, "intact")
	for begin := time.Now(); time.Since(begin) < *benchTime; {
		b.breakBy(rand.IntN(len(faults)))
	}
	b.check()
}
