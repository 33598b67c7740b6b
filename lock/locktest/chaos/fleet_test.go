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
)

var (
	fleetSeed   = flag.Uint64("fleet-seed", 1, "seed of the fleet; 0 means a new one")
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
			var h *history
			p := drawFleet(seed, n, *fleetTime)
			synctest.Test(t, func(t *testing.T) { h = playFleet(t, p, tally) })
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
