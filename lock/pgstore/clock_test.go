package pgstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/pgstore"
)

// A request whose reading another one drops at once goes on with what it has read.
func TestReadingIsDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	s := server(t)
	migrate(t, s, "dropped")
	store := open(t, s, pgstore.Config{Schema: "dropped"})
	ctx, end := context.WithCancel(t.Context())
	var dropping sync.WaitGroup
	dropping.Go(func() {
		for ctx.Err() == nil {
			store.SetReading(time.Time{})
		}
	})
	h := hold(driver.KindMutex, "a", "client:1")
	for range 300 {
		_, err := store.Acquire(t.Context(), h)
		assert.NoError(t, err)
	}
	end()
	dropping.Wait()
}
