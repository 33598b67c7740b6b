package locktest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/redisstore"
)

// failures is a test that records why it has failed.
type failures struct {
	testing.TB
	of []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.of = append(f.of, fmt.Sprintf(format, args...))
}

// A config that is refused fails the test and ends its process, rather than the test's own.
func TestConfigOfAProcessIsRefused(t *testing.T) {
	for _, use := range []func(*Process){
		func(p *Process) { p.Locker(lock.Config{TTL: -1}) },
		func(p *Process) { p.Store(redisstore.Config{Format: 255}) },
	} {
		Play(t, FleetConfig{Processes: 1, Time: time.Minute, Every: -1}, func(_ context.Context, p *Process) {
			failed := &failures{TB: p.t}
			p.t = failed
			used := false
			defer func() {
				p.t = failed.TB
				assert.False(t, used)
				if assert.Len(t, failed.of, 1) {
					assert.Contains(t, failed.of[0], "process 1")
				}
			}()
			use(p)
			used = true
		})
	}
}

// What a process opens once run has returned is closed.
func TestProcessOpensLate(t *testing.T) {
	Play(t, FleetConfig{Processes: 1, Time: time.Minute, Every: -1}, func(_ context.Context, p *Process) {
		go func() {
			time.Sleep(time.Second)
			_, err := p.Locker(lock.Config{}).Mutex("a").Lock(context.Background())
			assert.ErrorIs(t, err, lock.ErrClosed)
		}()
	})
}
