package chaos

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/delayqueue"
)

var (
	fleetSeed   = flag.Uint64("fleet-seed", 3, "seed of the fleet; 0 means a new one")
	fleetRounds = flag.Int("fleet-rounds", 4, "rounds of the fleet")
	fleetRound  = flag.Int("fleet-round", -1, "play this round of the fleet's seed alone")
	histories   = flag.String("histories", "", "write what the processes of each round reported to this folder")
	fleetTime   = flag.Duration("fleet-time", 0, "virtual time of a round of the fleet; 0: as drawn")
)

// TestFleet plays rounds in virtual time: processes of the real code, a network with faults, and
// servers with the real scripts, all drawn from a seed.
func TestFleet(t *testing.T) {
	seed := *fleetSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	tally := newTally()
	first, end := 0, *fleetRounds
	if *fleetRound >= 0 {
		first, end = *fleetRound, *fleetRound+1
	}
	for n := first; n < end && tally.total() == 0; n++ {
		t.Run(fmt.Sprint("round", n), func(t *testing.T) {
			begin := time.Now()
			var f *fleet
			var h *history
			var over instant
			p := drawFleet(seed, n, *fleetTime)
			synctest.Test(t, func(t *testing.T) { f, h, over = playFleet(t, p, tally) })
			f.t = t
			f.check(h, over)
			grants := 0
			for _, u := range h.uses {
				if u.granted {
					grants++
				}
			}
			t.Logf("-fleet-seed %d -fleet-round %d: %s, tempo %d, %v in %v, %d processes, %d uses, %d grants, %d messages", seed, n, p.Site, p.Workers[0].Tempo,
				p.Active, time.Since(begin).Round(time.Millisecond), len(h.processes), len(h.uses), grants, len(h.messages))
			if *histories != "" {
				writeFleet(t, p, h)
			}
		})
	}
	if testing.Verbose() {
		tally.table(os.Stderr)
	}
	if n := tally.total(); n > 0 {
		t.Errorf("%d breaks, see above; repeat with: go test ./lock/locktest/chaos -run '^TestFleet$' -args and the flags there", n)
	}
}

// The checks of the quiet period find what is wrong on a server and with a process.
func TestFleetFindsWhatIsLeft(t *testing.T) {
	for promise, spoil := range map[string]func(t *testing.T, f *fleet, m *member) (check func()){
		heldBySomebody: func(t *testing.T, f *fleet, m *member) func() {
			require.NoError(t, f.servers[0].Client(t).HSet(t.Context(), "a", m.client+":1", 1).Err())
			return f.checkHolders
		},
		permitsBack: func(t *testing.T, f *fleet, m *member) func() {
			_, err := f.locker.Semaphore("s").TrySetPermits(t.Context(), 2)
			require.NoError(t, err)
			require.NoError(t, f.locker.Semaphore("s").TryAcquire(t.Context(), 1))
			m.report(event{What: evCall, Op: 1, Kind: semaphoreKind, Name: "s"})
			return f.checkCounts
		},
		keysEnd: func(t *testing.T, f *fleet, _ *member) func() {
			require.NoError(t, f.servers[0].Client(t).Set(t.Context(), "x", 1, 0).Err())
			return f.checkKeys
		},
		noSubscription: func(t *testing.T, f *fleet, _ *member) func() {
			left := f.servers[0].Client(t).Subscribe(t.Context(), "redisson_lock__channel:{a}")
			t.Cleanup(func() { _ = left.Close() })
			return f.checkSubscriptions
		},
		queueDrained: func(t *testing.T, f *fleet, _ *member) func() {
			f.plan.Workers[0].Queue = &queuePlan{Name: "q"}
			q, err := delayqueue.New(f.own, "q", delayqueue.Config{})
			require.NoError(t, err)
			_, err = q.Put(t.Context(), delayqueue.Message{ID: "m"})
			require.NoError(t, err)
			require.NoError(t, q.Shutdown(t.Context()))
			return f.checkDrained
		},
		noWaiterStuck: func(_ *testing.T, f *fleet, m *member) func() {
			m.report(event{What: evCall, Op: 1, Kind: mutexKind, Name: "a"})
			return func() { f.reach(evProbed) }
		},
		noGoroutine: func(_ *testing.T, f *fleet, m *member) func() {
			m.background.Add(1)
			return func() {
				f.closeMembers()
				m.background.Done()
			}
		},
	} {
		t.Run(promise, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &plan{Site: single, Names: []namePlan{{Name: "a", Kind: mutexKind}, {Name: "s", Kind: semaphoreKind, Count: 2}}, Workers: make([]workerPlan, places)}
				sound, spoilt := newTally(), newTally()
				f := newFleet(t, p, spoilt)
				f.start(0)
				check := spoil(t, f, f.current[0])
				check()
				require.Equal(t, 1, spoilt.broken[promise], "%v", spoilt.broken)
				if promise != noGoroutine {
					f.closeMembers()
				}

				f = newFleet(t, &plan{Site: single, Names: p.Names, Workers: make([]workerPlan, places)}, sound)
				f.start(0)
				f.quiet()
				require.Zero(t, sound.total(), "%v", sound.broken)
			})
		})
	}
}

// A round of the fleet can be drawn again, and every kind of fault and name is drawn.
func TestFleetPlansRepeat(t *testing.T) {
	faults, kinds := map[string]bool{}, map[kind]bool{}
	for n := range 200 {
		p := drawFleet(7, n, 0)
		require.Equal(t, p, drawFleet(7, n, 0))
		for _, f := range p.Faults {
			faults[f.Kind] = true
		}
		for _, n := range p.Names {
			kinds[n.Kind] = true
		}
	}
	require.Len(t, faults, len(fleetFaults))
	require.Len(t, kinds, 7)
}

func writeFleet(t *testing.T, p *plan, h *history) {
	var b strings.Builder
	begun := instant(946684800e9) // the beginning of a bubble
	for _, u := range h.uses {
		fmt.Fprintln(&b, u.in(begun))
	}
	name := filepath.Join(*histories, fmt.Sprintf("fleet-%d-%d.txt", p.Seed, p.Round))
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Error(err)
	}
}
