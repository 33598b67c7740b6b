package peers

import (
	"math/rand/v2"
	"time"
)

// delays are so long that no timeout fires during a benchmark, and so many that they fill
// every bucket.
var delays = func() (d [4096]time.Duration) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range d {
		d[i] = 10*time.Minute + time.Duration(random.Int64N(int64(10*time.Minute)))
	}
	return d
}()

func delay(i int) time.Duration { return delays[i%len(delays)] }

func nothing() {}
