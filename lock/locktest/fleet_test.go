package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
)

// The context of a killed process ends with ErrKilled, and another process takes its place. All
// others run until the fleet ends.
func TestPlayedProcessesEnd(t *testing.T) {
	var mu sync.Mutex
	causes := map[int]error{}
	locktest.Play(t, locktest.FleetConfig{Processes: 2, Time: 15 * time.Minute, Every: 15 * time.Second, LoseData: true}, func(ctx context.Context, p *locktest.Process) {
		l := p.Locker(lock.Config{})
		<-ctx.Done()
		mu.Lock()
		causes[p.Number()] = context.Cause(ctx)
		mu.Unlock()
		if _, err := l.Mutex("a").TryLock(context.Background()); errors.Is(context.Cause(ctx), locktest.ErrKilled) {
			assert.ErrorIs(t, err, lock.ErrUnavailable)
		}
	})
	killed := 0
	for number := range len(causes) {
		if errors.Is(causes[number+1], locktest.ErrKilled) {
			killed++
		} else {
			assert.ErrorIs(t, causes[number+1], context.Canceled)
		}
	}
	assert.Equal(t, 2, len(causes)-killed, "as many as run at a time")
	assert.NotZero(t, killed)
}

// Without faults no process of a fleet is replaced, and none has a request that fails. A mean time
// of centuries between two faults is none within a minute.
func TestPlayWithoutFaults(t *testing.T) {
	for seed, every := range map[uint64]time.Duration{1: -1, 2: math.MaxInt64, 3: math.MaxInt64} {
		locktest.Play(t, locktest.FleetConfig{Time: time.Minute, Quiet: time.Second, Every: every, Seed: seed}, func(ctx context.Context, p *locktest.Process) {
			assert.LessOrEqual(t, p.Number(), 3, "seed %d", seed)
			own := p.Locker(lock.Config{}).Mutex(fmt.Sprint(p.Number()))
			for ctx.Err() == nil {
				lease, err := own.TryLock(context.Background())
				if !assert.NoError(t, err, "seed %d", seed) {
					return
				}
				assert.NoError(t, lease.Unlock(context.Background()))
				time.Sleep(5 * time.Second)
			}
		})
	}
}
