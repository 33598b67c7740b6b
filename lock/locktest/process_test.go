package locktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// A server is frozen until the last of the freezes that overlap has ended.
func TestFreezesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, server: Start(t)}
		mutex := f.server.Locker(t, lock.Config{}).Mutex("a")
		frozen := func() bool {
			lease, err := mutex.TryLock(t.Context())
			if err == nil {
				require.NoError(t, lease.Unlock(t.Context()))
			}
			return err != nil
		}
		for _, step := range []struct {
			by     int
			frozen bool
		}{{1, true}, {1, true}, {-1, true}, {1, true}, {-1, true}, {-1, false}, {1, true}, {-1, false}} {
			f.freeze(step.by)
			require.Equal(t, step.frozen, frozen())
		}
	})
}

// Faults begin at the rate that was asked for, also while killed processes are replaced, and several
// may be dead at once.
func TestFaultsWhileProcessesAreDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		f := &fleet{FleetConfig: FleetConfig{Processes: 10, Time: hour, Every: 20 * time.Second}.withDefaults(), t: t, server: Start(t), begun: time.Now(), rng: rand.New(rand.NewPCG(1, 0))}
		f.run = func(ctx context.Context, _ *Process) { <-ctx.Done() }
		for range f.Processes {
			f.start()
		}
		fewest := f.Processes
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.inflict()
		}()
		for range int(hour / time.Second) {
			time.Sleep(time.Second)
			synctest.Wait()
			f.mu.Lock()
			fewest = min(fewest, len(f.living))
			f.mu.Unlock()
		}
		<-ended
		assert.Less(t, fewest, f.Processes-1, "two are dead at once")
		assert.Len(t, f.living, f.Processes, "each has been replaced")
		f.end()
	})
}

// A process that outlasts its context by more than a minute fails the test, whether it was killed or
// the fleet ends.
func TestProcessOutlastsItsContext(t *testing.T) {
	for name, killed := range map[string]bool{"Killed": true, "Ended": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fleet{t: t, server: Start(t), rng: rand.New(rand.NewPCG(1, 0)), begun: time.Now()}
				f.run = func(ctx context.Context, p *Process) {
					<-ctx.Done()
					if time.Sleep(time.Minute - time.Second); p.Number() == 1 {
						time.Sleep(2 * time.Second)
					}
				}
				f.start()
				failed := &failures{TB: t}
				f.all[0].t = failed
				if killed {
					f.kill(f.all[0], t.Logf)
					f.faults.Wait()
				} else {
					f.end()
				}
				assert.Equal(t, []string{"locktest: process 1 has not returned a minute after the end of its context"}, failed.of)
				f.end()
			})
		})
	}
}
