//go:build unix

package demo

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/bench/hostclock"
	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/renewal"
)

// slowRenewals answers each batch after 50 ms; every lease but "gone" is renewed.
type slowRenewals struct{ driver.Store }

func (slowRenewals) Renew(_ context.Context, items []renewal.Item) {
	time.Sleep(50 * time.Millisecond)
	for i := range items {
		if items[i].Key != "gone" {
			items[i].Outcome = renewal.Renewed
		}
	}
}

// Of the shown leases the life has every event with its instant; of the others only that
// they were renewed.
func TestLeasesLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, err := hostclock.New()
		require.NoError(t, err)
		begin := time.Now()
		at := func(d time.Duration) hostclock.Instant { return clock.Of(begin.Add(d)) }
		life := newLeasesLife()
		store := &countingStore{Store: slowRenewals{}, life: life}
		life.show("kept", "lease 0")
		life.show("gone", "lease 1")
		life.show("never", "lease 2")

		time.Sleep(time.Second)
		for i, name := range []string{"kept", "gone", "other"} {
			life.granted(name, begin, time.Now(), int64(7+i))
		}
		items := []renewal.Item{{Key: "kept"}, {Key: "gone"}, {Key: "other"}}
		time.Sleep(time.Second)
		store.Renew(t.Context(), items)
		life.deleted("gone", time.Now())
		life.deleted("other", time.Now())
		time.Sleep(time.Second)
		life.lossReported("gone", time.Now(), "taken over")
		life.lossReported("other", time.Now(), "taken over")
		assert.EqualValues(t, 2, store.renewals.Load())

		lives := &timeline{begin: clock.Of(begin)}
		life.addTo(lives, clock)
		lives.finish(at(4 * time.Second))
		assert.Equal(t, []renewalBatch{{at(2 * time.Second), at(2050 * time.Millisecond), 2}}, lives.batches)
		require.Len(t, lives.leases, 3)
		assert.Equal(t, &lane{
			name:  "lease 0",
			spans: []span{{spanWaiting, at(0), at(time.Second), 0}, {spanHeld, at(time.Second), at(4 * time.Second), 7}},
			marks: []mark{{markRenewed, at(2050 * time.Millisecond), 7, ""}},
		}, lives.leases[0])
		assert.Equal(t, &lane{
			name: "lease 1",
			spans: []span{
				{spanWaiting, at(0), at(time.Second), 0},
				{spanHeld, at(time.Second), at(2050 * time.Millisecond), 8},
				{spanLost, at(2050 * time.Millisecond), at(3050 * time.Millisecond), 8},
			},
			marks: []mark{
				{markDeleted, at(2050 * time.Millisecond), 8, ""},
				{markReported, at(3050 * time.Millisecond), 8, "taken over"},
			},
		}, lives.leases[1])
		assert.Equal(t, &lane{name: "lease 2"}, lives.leases[2])
	})
}

// The shown leases are distinct and spread over all, and every second one is deleted.
func TestShownLeases(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, shownLeases(10))
	assert.Equal(t, []int{0, 300, 600, 900, 1200, 1500, 1800, 2100, 2400, 2700}, shownLeases(3000))
}
