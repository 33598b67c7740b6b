package exporter

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/renewal"
)

// Histograms keep the bounds, counts and sums of the statistics, and have a last bucket
// without a bound.
func TestHistograms(t *testing.T) {
	s := renewal.Stats{Batches: 3, Sent: 70, Renewed: 4, RemainingSum: 2.5}
	s.Sizes[0], s.Sizes[6], s.Sizes[16] = 1, 1, 1
	s.Remaining[0], s.Remaining[6] = 1, 3
	for _, lag := range []time.Duration{0, time.Millisecond, time.Hour} {
		s.Lags.Add(lag)
	}

	h := requestLeases(s)
	assert.Equal(t, []any{uint64(3), 70.0}, []any{h.Count, h.Sum})
	assert.Equal(t, []float64{1, 2, 64, 65536}, []float64{h.Bounds[0], h.Bounds[1], h.Bounds[6], h.Bounds[16]})
	assert.Equal(t, []uint64{1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0}, h.Counts)
	assert.Len(t, h.Bounds, 17)

	assert.Equal(t, Histogram{
		[]float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, 1}, []uint64{1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0}, 4, 2.5,
	}, remaining(s))

	h = ofLags(s.Lags)
	assert.Equal(t, []any{uint64(3), 3600.001}, []any{h.Count, h.Sum})
	assert.Equal(t, []float64{64e-6, 1024e-6, 4.194304}, []float64{h.Bounds[0], h.Bounds[4], h.Bounds[16]})
	assert.Equal(t, s.Lags.Counts[:], h.Counts)
	assert.Len(t, h.Bounds, 17)
}
