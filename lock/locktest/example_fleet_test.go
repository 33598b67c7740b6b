package locktest_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// ledger is a resource outside of the store that accepts what is written with a larger fencing
// token than before.
type ledger struct {
	mu      sync.Mutex
	token   int64
	entries int
}

// write reports whether the ledger has accepted an entry.
func (l *ledger) write(token int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if token <= l.token {
		return false
	}
	l.token = token
	l.entries++
	return true
}

// Three processes write to a ledger for ten minutes, while the network breaks, processes die and
// the server freezes. The lock does not let an older holder write after a newer one.
func ExamplePlay() {
	enough := false
	test := func(t *testing.T) {
		var book ledger
		locktest.Play(t, locktest.FleetConfig{Time: 10 * time.Minute}, func(ctx context.Context, p *locktest.Process) {
			mutex := p.Locker(lock.Config{}).Mutex("ledger")
			for ctx.Err() == nil {
				lease, err := mutex.Lock(ctx)
				if err != nil {
					continue // ctx has ended
				}
				select { // it works for a while
				case <-time.After(20 * time.Second):
				case <-lease.Lost():
				}
				if lease.Valid() && !book.write(lease.Token()) {
					t.Errorf("process %d: token %d is too old", p.Number(), lease.Token())
				}
				_ = lease.Unlock(ctx)
			}
		})
		enough = book.entries > 10
	}
	play(test)
	fmt.Println("more than 10 entries:", enough)
	// Output: more than 10 entries: true
}

// play runs a test, as go test would.
func play(test func(t *testing.T)) {
	verbose := flag.Lookup("test.v").Value
	before := verbose.String()
	_ = verbose.Set("false") // what it prints would be compared with the output
	defer func() { _ = verbose.Set(before) }()
	testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "Fleet", F: test}})
}
