package retry_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/leasewheel/leasewheel/lock/retry"
)

func TestPolicies(t *testing.T) {
	pauses := func(r retry.Policy, n int) (all []time.Duration) {
		for refused := 1; refused <= n; refused++ {
			pause, again := r(refused)
			if !again {
				break
			}
			all = append(all, pause)
		}
		return all
	}
	const s = time.Second
	assert.Equal(t, []time.Duration{s, s, s}, pauses(retry.Every(s), 3))
	assert.Equal(t, []time.Duration{s, 2 * s, 4 * s, 5 * s, 5 * s}, pauses(retry.Exponential(s, 5*s), 5))
	assert.Equal(t, []time.Duration{s, 2 * s}, pauses(retry.Exponential(s, 5*s).Limited(3), 10))
	assert.Empty(t, pauses(retry.Every(s).Limited(1), 10))
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Int64Range(1, math.MaxInt64).Draw(t, "first")
		most := rapid.Int64Range(first, math.MaxInt64).Draw(t, "most")
		part := rapid.Float64Range(0.01, 1).Draw(t, "part")
		refused := rapid.IntRange(1, 1000).Draw(t, "refused")
		whole, _ := retry.Exponential(time.Duration(first), time.Duration(most))(refused)
		pause, again := retry.Exponential(time.Duration(first), time.Duration(most)).Jittered(part)(refused)
		if !again || whole < time.Duration(first) || whole > time.Duration(most) || pause > whole || float64(pause) < float64(whole)*(1-part)*0.999-1 {
			t.Fatalf("%v of %v", pause, whole)
		}
	})
	shortest, longest := time.Hour, time.Duration(0)
	for _, pause := range pauses(retry.Every(time.Hour).Jittered(1), 1000) {
		shortest, longest = min(shortest, pause), max(longest, pause)
	}
	assert.Less(t, shortest, 20*time.Minute, "one of a thousand that are drawn from an hour")
	assert.Greater(t, longest, 40*time.Minute)
	for name, misuse := range map[string]func(){
		"Every": func() { retry.Every(0) }, "Exponential": func() { retry.Exponential(2, 1) }, "Exponential 0": func() { retry.Exponential(0, 1) },
		"Jittered": func() { retry.Every(1).Jittered(math.NaN()) }, "Jittered 0": func() { retry.Every(1).Jittered(0) }, "Jittered 2": func() { retry.Every(1).Jittered(2) },
		"Limited": func() { retry.Every(1).Limited(0) },
	} {
		assert.Panics(t, misuse, name)
	}
}
