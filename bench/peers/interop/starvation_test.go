//go:build real

package interop

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

// TestPollingClientsAreNotStarved runs Java's clients that poll, or subscribe on a replica,
// beside two busy goroutines of ours. Each gets at least a tenth of the grants that it would
// have among three of its own kind: a thirtieth of all.
func TestPollingClientsAreNotStarved(t *testing.T) {
	each(t, func(t *testing.T, version string) {
		for _, row := range []struct{ who, kind, how, mode string }{
			{"RSpinLock", "spin", "listen", ""},
			{"polled tryLock", "mutex", "poll", ""},
			{"subscriptionMode=SLAVE", "mutex", "listen", "SLAVE"},
			{"RLock that listens", "mutex", "listen", ""},
		} {
			t.Run(row.who, func(t *testing.T) {
				t.Parallel()
				s := single(t)
				var options []string
				address := s.address
				if row.mode != "" {
					options = append(options, "subscription="+row.mode)
					address = replicated(t, s)
				}
				java := open(t, ownRedisson(t, version), address, options...)
				wheel := open(t, golang(t), s.address)
				var turns map[string]int
				record(t, "4 starvation: "+row.who, java.name, "mutex", both, func() string {
					return fmt.Sprintf("Go %d, Java %d grants", turns["Go"], turns["Java"])
				})
				w := newContest(t, s, 1)
				w.work(java, 1, row.kind, row.how, 1, 0, "Java")
				// A JVM starts slowly: it works alone at first.
				w.until("Java works", eachHad(20, "Java"))
				alone := w.turns()["Java"]
				w.work(wheel, 2, "mutex", "listen", 1, 0, "Go")
				// A thirtieth of all grants.
				turns = w.run(min(*soakFor, 10*time.Second), func(turns map[string]int) bool {
					java := turns["Java"] - alone
					return turns["Go"] >= 300 && 30*java >= turns["Go"]+java
				})
				turns["Java"] -= alone
				t.Logf("%s: Go %d, Java %d", row.who, turns["Go"], turns["Java"])
			})
		}
	})
}

// replicated starts a replica of s and returns the address of both.
func replicated(t *testing.T, s *site) string {
	t.Helper()
	address := s.nodes[0].Options().Addr
	replica := redistest.Start(t, redistest.Config{TCP: true, Directives: []string{"replicaof " + spaced(address)}})
	_, other := replica.Addr()
	eventually(t, "the replica follows", func(ctx context.Context) bool {
		info, _ := s.nodes[0].Info(ctx, "replication").Result()
		return strings.Contains(info, "state=online")
	})
	return "replicated://" + address + "," + other
}

// spaced returns host:port in the form of the directive replicaof.
func spaced(address string) string { return strings.Replace(address, ":", " ", 1) }
