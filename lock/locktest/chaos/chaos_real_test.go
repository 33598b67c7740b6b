//go:build linux && real

package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasewheel/leasewheel/lock/locktest/redistest"
)

var (
	seedFlag  = flag.Uint64("seed", 78, "seed of the fault bench; 0 means a new one")
	timeFlag  = flag.Duration("time", 60*time.Second, "no round of the fault bench begins after this long")
	roundFlag = flag.Int("round", -1, "play this round of the seed alone")
	firstFlag = flag.Int("first", 0, "play the rounds of the seed from this one on")
	atOnce    = flag.Int("at-once", 3, "play so many rounds at a time")
	strict    = flag.Bool("strict", false, "check also what a busy machine's timers may break")
	siteFlag  = flag.String("site", "", "draw this site only: single, sentinel, cluster or quorum")
	activeFor = flag.Duration("active", 5*time.Second, "have the faults of a round last so long; 0: as drawn")
	faultFlag = flag.String("faults", "", "draw these kinds of fault only, separated by commas")
	jsonFlag  = flag.String("json", "", "write the report to this file")
)

// TestFaultBench plays rounds drawn from a seed, as long as -time allows, and fails if a
// promise was broken.
func TestFaultBench(t *testing.T) {
	redistest.Need(t)
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("repeat with -seed %d", seed)
	fmt.Fprintf(os.Stderr, "fault bench: seed %d\n", seed)
	only := limits{site: site(*siteFlag), active: *activeFor}
	if *faultFlag != "" {
		only.faults = strings.Split(*faultFlag, ",")
	}
	tally := newTally()
	begin := time.Now()
	var rounds atomic.Int64
	var players sync.WaitGroup
	if *roundFlag >= 0 {
		*atOnce = 1
	}
	for range *atOnce {
		players.Go(func() {
			for time.Since(begin) < *timeFlag {
				n := *firstFlag + int(rounds.Add(1)) - 1
				if *roundFlag >= 0 {
					n = *roundFlag
				}
				t.Run(fmt.Sprint("round", n), func(t *testing.T) {
					play(t, draw(seed, n, only), settings{*strict, *histories}, tally)
				})
				if *roundFlag >= 0 {
					break
				}
			}
		})
	}
	players.Wait()
	fmt.Fprintf(os.Stderr, "fault bench: seed %d, %d rounds in %v\n", seed, rounds.Load(), time.Since(begin).Round(time.Second))
	tally.table(os.Stderr)
	if *jsonFlag != "" {
		writeReport(t, tally, seed, rounds.Load())
	}
	if n := tally.unsafe(); n > 0 {
		t.Errorf("broken promise: %d, see above", n)
	} else if n := tally.total(); n > 0 {
		t.Errorf("not done in time: %d, see above", n)
	}
}

func writeReport(t *testing.T, tally *tally, seed uint64, rounds int64) {
	report := struct {
		Seed     uint64         `json:"seed"`
		Rounds   int64          `json:"rounds"`
		Checked  map[string]int `json:"checked"`
		Voided   map[string]int `json:"voided"`
		Broken   map[string]int `json:"broken"`
		Breaches []breach       `json:"breaches"`
	}{seed, rounds, tally.checked, tally.unjudged, tally.broken, tally.breaches}
	text, err := json.MarshalIndent(report, "", "  ")
	if err == nil {
		err = os.WriteFile(*jsonFlag, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
