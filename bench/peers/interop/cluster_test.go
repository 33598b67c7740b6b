//go:build real

package interop

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestClusterWakes wakes waiters of each kind in a cluster, with each mode of pub/sub: our
// option pubsub, and Redisson's shardedSubscriptionMode.
func TestClusterWakes(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		s := cluster(t)
		for _, mode := range pubsubModes(version) {
			java := open(t, redisson(t, version), s.address, mode.java...)
			wheel := open(t, golang(t), s.address, mode.ours...)
			for _, d := range directions(java, wheel) {
				for _, k := range slices.Concat(locks[:4], []sides{{"semaphore", "", ""}, {"permits", "", ""}, {"latch", "", ""}}) {
					t.Run(fmt.Sprintf("%s %s %s", mode.name, d.name, k.kind), func(t *testing.T) {
						t.Parallel()
						testClusterWake(t, s, d, k, "5 cluster, "+mode.name)
					})
				}
			}
		}
	})
}

type pubsubMode struct {
	name       string
	java, ours []string
}

// pubsubModes are the modes in which a version's clients and ours wake each other.
func pubsubModes(version string) []pubsubMode {
	if !atLeast(version, "3.22.0") {
		return []pubsubMode{{"Redisson without sharded pub/sub, pubsub=off", nil, []string{"pubsub=off"}},
			{"Redisson without sharded pub/sub, pubsub=both", nil, []string{"pubsub=both"}}}
	}
	modes := []pubsubMode{{"both auto", nil, nil}, {"Redisson auto, pubsub=both", nil, []string{"pubsub=both"}}}
	if atLeast(version, "3.29.0") {
		modes = append(modes, pubsubMode{"both off", []string{"sharded=OFF"}, []string{"pubsub=off"}},
			pubsubMode{"Redisson OFF, pubsub=both", []string{"sharded=OFF"}, []string{"pubsub=both"}})
	}
	return modes
}

func testClusterWake(t *testing.T, s *site, d direction, k sides, scenario string) {
	h, w := d.holder.of(t), d.waiter.of(t)
	var text string
	peer := h.name
	if peer == "leasewheel" {
		peer = w.name
	}
	record(t, scenario, peer, k.kind, d.name, func() string { return text })
	var median time.Duration
	switch k.kind {
	case "semaphore":
		median = testSemaphore(t, s, h, w)
	case "permits":
		median = testPermits(t, s, h, w)
	case "latch":
		median = testLatch(t, s, h, w)
	default:
		median = wakeUp(t, s, h, w, k)
	}
	text = woken(median)
	assert.Less(t, median, awake, "nobody woke the waiter")
}

// TestClusterAutoWakesUnshardedSubscribers checks that our release wakes Java's clients that
// subscribe without shards.
func TestClusterAutoWakesUnshardedSubscribers(t *testing.T) {
	// Between the two, sharded pub/sub cannot be turned off.
	unsharded := func(version string) bool { return atLeast(version, "3.29.0") || !atLeast(version, "3.22.0") }
	eachThat(t, unsharded, func(t *testing.T, version string) {
		var options []string
		if atLeast(version, "3.29.0") {
			options = []string{"sharded=OFF"}
		}
		s := cluster(t)
		java, wheel := open(t, redisson(t, version), s.address, options...), open(t, golang(t), s.address)
		for _, k := range slices.Concat(locks[:4], []sides{{"semaphore", "", ""}, {"permits", "", ""}, {"latch", "", ""}}) {
			t.Run(k.kind, func(t *testing.T) {
				t.Parallel()
				testClusterWake(t, s, direction{ours, wheel, java}, k, "5 cluster, Redisson without shards, ours auto")
			})
		}
	})
}

// TestClusterSoak runs both sides in a cluster with the default modes.
func TestClusterSoak(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		mode := pubsubModes(version)[0]
		s := cluster(t)
		java, wheel := open(t, ownRedisson(t, version), s.address, mode.java...), open(t, golang(t), s.address, mode.ours...)
		var turns map[string]int
		record(t, "5 cluster, "+mode.name+", contended", java.name, "mutex", both, func() string {
			return fmt.Sprintf("Go %d, Java %d grants", turns["Go"], turns["Java"])
		})
		w := newContest(t, s, 1)
		w.work(wheel, 2, "mutex", "listen", 1, 0, "Go")
		w.work(java, 2, "mutex", "listen", 1, 0, "Java")
		turns = w.run(min(*soakFor, 5*time.Second), eachHad(20, "Go", "Java"))
	})
}
