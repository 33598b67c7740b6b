package locktest_test

import (
	"context"
	"errors"
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

// Without faults a lock of a fleet is lost by no one.
func TestPlayWithoutFaults(t *testing.T) {
	locktest.Play(t, locktest.FleetConfig{Time: time.Minute, Every: -1}, func(ctx context.Context, p *locktest.Process) {
		lease, err := p.Locker(lock.Config{}).Fair("a").Lock(ctx)
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-lease.Lost():
			t.Errorf("process %d has lost its lock: %v", p.Number(), lease.Err())
		}
		assert.NoError(t, lease.Unlock(context.Background()))
	})
}
