package wheel

import (
	"sync"
	"testing"
)

// Goroutines that live at the same time are spread over the shards: as many goroutines as
// there are shards use a quarter of them at least. Evenly spread ones use 63 %.
func TestGoroutinesAreSpreadOverTheShards(t *testing.T) {
	w := start(t, Config{})
	shards := make(chan *shard)
	var all sync.WaitGroup
	end := make(chan struct{})
	for range w.shards {
		all.Go(func() {
			shards <- w.shard()
			<-end
		})
	}
	used := map[*shard]bool{}
	for range w.shards {
		used[<-shards] = true
	}
	close(end)
	all.Wait()
	check(t, len(used) >= len(w.shards)/4, "%d goroutines use %d of the shards", len(w.shards), len(used))
}
