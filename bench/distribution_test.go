package bench

import (
	"bufio"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDistribution(t *testing.T) {
	d := newDistribution()
	assert.Zero(t, d.Count())
	assert.Zero(t, d.Mean())
	assert.Zero(t, d.Percentile(99))
	assert.Empty(t, d.Bars())
	for i := range 1000 {
		d.add(time.Duration(i+1) * time.Millisecond)
	}
	assert.EqualValues(t, 1000, d.Count())
	assert.Equal(t, time.Second, d.Max())
	assert.Equal(t, 500500*time.Microsecond, d.Mean())
	for p, want := range map[float64]time.Duration{
		50: 500 * time.Millisecond, 99: 990 * time.Millisecond, 99.9: 999 * time.Millisecond, 100: time.Second,
	} {
		assert.InEpsilon(t, want, d.Percentile(p), 0.001, "p%v", p)
	}
	assert.LessOrEqual(t, d.Percentile(100), d.Max())

	total := int64(0)
	for _, bar := range d.Bars() {
		assert.Positive(t, bar.Count)
		assert.LessOrEqual(t, bar.From, bar.To)
		total += bar.Count
	}
	assert.EqualValues(t, 1000, total)
}

// A merged distribution has the figures of both, whichever has the greatest duration.
func TestMergedDistributionHasTheFiguresOfBoth(t *testing.T) {
	for _, durations := range [][2]time.Duration{{time.Second, 3 * time.Second}, {3 * time.Second, time.Second}} {
		d, other := newDistribution(), newDistribution()
		d.add(durations[0])
		other.add(durations[1])
		d.merge(other)
		assert.EqualValues(t, 2, d.Count())
		assert.Equal(t, 3*time.Second, d.Max())
		assert.Equal(t, 2*time.Second, d.Mean())
		assert.InEpsilon(t, time.Second, d.Percentile(50), 0.001)
		assert.Equal(t, 3*time.Second, d.Percentile(100))
	}
}

func TestDistributionClampsWhatItCannotHold(t *testing.T) {
	d := newDistribution()
	d.add(-time.Second)
	d.add(1<<63 - 1)
	assert.EqualValues(t, 2, d.Count())
	assert.Zero(t, d.Percentile(1))
	assert.Equal(t, longest, d.Max())
}

func TestHgrmIsInMilliseconds(t *testing.T) {
	d := newDistribution()
	d.add(250 * time.Millisecond)
	var out strings.Builder
	require.NoError(t, d.WriteHgrm(&out))
	assert.Contains(t, out.String(), "Value\tPercentile\tTotalCount\t1/(1-Percentile)")
	assert.Regexp(t, `(?m)^ *250\.\d+ +1\.0+ +1 `, out.String())
	assert.Contains(t, out.String(), "Total count    =            1")
}

func TestModelName(t *testing.T) {
	const cpuinfo = "processor\t: 0\nmodel name\t: A Processor: 3 GHz\nmodel name\t: another\n"
	assert.Equal(t, "A Processor: 3 GHz", modelName(bufio.NewScanner(strings.NewReader(cpuinfo))))
	assert.Empty(t, modelName(bufio.NewScanner(strings.NewReader("Hardware\t: BCM2835\n"))))
}
