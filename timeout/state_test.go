package timeout

import (
	"math"
	"testing"
	"testing/quick"
	"time"
)

func TestWordKeepsTickLifeAndPhaseApart(t *testing.T) {
	check := func(tick, other uint64, life uint64, phase, next uint8) bool {
		k, l := Tick(tick)&MaxTick, Tick(other)&MaxTick
		p, q := word(phase)&phaseMask, word(next)&phaseMask
		w := pack(k, life, p)
		bits := word(life) << phaseBits & lifeMask
		return w.tick() == k && w.phase() == p && w&lifeMask == bits &&
			w.withPhase(q) == pack(k, life, q) && w.withTick(l) == pack(l, life, p)
	}
	if err := quick.Check(check, &quick.Config{MaxCount: 20_000}); err != nil {
		t.Error(err)
	}
	for _, edge := range []uint64{0, 1, uint64(MaxTick), uint64(MaxTick) - 1} {
		for _, life := range []uint64{0, 1, 1<<lifeBits - 1, 1 << lifeBits, math.MaxUint64} {
			for phase := range word(1 << phaseBits) {
				if !check(edge, uint64(MaxTick)-edge, life, uint8(phase), uint8(phase+1)) {
					t.Errorf("tick %d, life %d, phase %d are mixed up", edge, life, phase)
				}
			}
		}
	}
	if pack(5, 1<<lifeBits, pending) != pack(5, 0, pending) {
		t.Error("a long life spills over into the tick")
	}
}

// No deadline can exceed a word's range: the longest duration, in the smallest tick that
// an engine has, is below MaxTick.
func TestMaxTickIsBeyondTheLongestDuration(t *testing.T) {
	const smallest = 100 * time.Microsecond
	if longest := Tick(math.MaxInt64 / smallest); longest >= MaxTick {
		t.Errorf("%d ticks in the longest duration, MaxTick is %d", longest, MaxTick)
	}
}

func TestStateString(t *testing.T) {
	for s, want := range map[State]string{
		Idle: "idle", Pending: "pending", Done: "done", Done + 1: "invalid", 255: "invalid",
	} {
		if s.String() != want {
			t.Errorf("State(%d) is %q, want %q", s, s, want)
		}
	}
}
