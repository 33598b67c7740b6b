//go:build real

package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
)

// A thousand waiters of eight processes are served in the order of the server's queue. If
// one process dies, with a tenth of them, the others are still served.
func TestFairAmongProcesses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		all    int // waiters
		killed int // how many are served before a process is killed; none if negative
	}{
		{"all live", 1000, -1},
		{"a tenth dies waiting", 400, 0},
		{"a tenth dies meanwhile", 400, 120},
	} {
		t.Run(test.name, func(t *testing.T) {
			all, dying := test.all, test.all/10
			server, admin := startServer(t)
			l := locker(t, server.Client(t), lock.Config{})
			lease := mustLockFair(t, l)
			victim := startProcess(t, "wait fairly", server.URL(), dying)
			left := all - dying
			for processes := 7; processes > 0; processes-- {
				startProcess(t, "wait fairly", server.URL(), left/processes)
				left -= left / processes
			}
			arrived := awaitQueue(t, admin, all)
			awaitChannels(t, admin, all)
			counts := make(map[string]int)
			for _, owner := range arrived {
				counts[strings.Split(owner, ":")[0]]++
			}
			require.Len(t, counts, 8)
			kill := func() {
				require.NoError(t, victim.Kill())
			}
			if test.killed == 0 {
				kill()
			}
			begin := time.Now()
			require.NoError(t, lease.Unlock(t.Context()))
			if test.killed > 0 {
				require.Eventually(t, func() bool {
					return admin.LLen(t.Context(), "served").Val() >= int64(test.killed)
				}, 30*time.Second, time.Millisecond)
				kill()
			}
			require.Eventually(t, func() bool {
				return admin.Exists(t.Context(), "orders", fairList).Val() == 0
			}, time.Minute, 10*time.Millisecond)
			took := time.Since(begin)
			served, err := admin.LRange(t.Context(), "served", 0, -1).Result()
			require.NoError(t, err)
			t.Logf("%d were served in %v", len(served), took)

			place := make(map[string]int, all)
			for i, owner := range arrived {
				place[owner] = i
			}
			last := -1
			for _, owner := range served {
				at, waited := place[owner]
				require.True(t, waited, "%s was served and had no place", owner)
				require.Greater(t, at, last, "%s was served too late, or twice", owner)
				last = at
			}
			missing := make(map[string]int)
			for _, owner := range arrived {
				missing[strings.Split(owner, ":")[0]]++
			}
			for _, owner := range served {
				missing[strings.Split(owner, ":")[0]]--
			}
			for process, n := range missing {
				if n != 0 {
					assert.Equal(t, dying, counts[process], "%d waiters of a process that lives were not served", n)
					assert.GreaterOrEqual(t, test.killed, 0)
				}
			}
		})
	}
}
