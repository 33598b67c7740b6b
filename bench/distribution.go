package bench

import (
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// longest is the greatest duration that a Distribution distinguishes; longer ones count
	// as this.
	longest = 24 * time.Hour
	// digits is how many significant digits of a duration are kept.
	digits = 3
)

// A Distribution is an HDR histogram of durations: three significant digits of
// each from a nanosecond to a day, beside the exact mean and maximum. The zero
// value is not ready; Distributions come with a [Result].
type Distribution struct {
	hist *hdrhistogram.Histogram
	max  time.Duration
	sum  float64
}

func newDistribution() *Distribution {
	return &Distribution{hist: hdrhistogram.New(1, int64(longest), digits)}
}

// add counts one duration; a negative one counts as zero.
func (d *Distribution) add(v time.Duration) {
	v = min(max(v, 0), longest)
	// RecordValue fails beyond the range alone, and v is within.
	_ = d.hist.RecordValue(int64(v))
	d.max = max(d.max, v)
	d.sum += float64(v)
}

// merge adds all that other has counted.
func (d *Distribution) merge(other *Distribution) {
	d.hist.Merge(other.hist)
	d.max = max(d.max, other.max)
	d.sum += other.sum
}

// Count returns how many durations were counted.
func (d *Distribution) Count() int64 { return d.hist.TotalCount() }

// Max returns the greatest duration, exactly.
func (d *Distribution) Max() time.Duration { return d.max }

// Mean returns the exact mean, or zero if nothing was counted.
func (d *Distribution) Mean() time.Duration {
	if d.Count() == 0 {
		return 0
	}
	return time.Duration(d.sum / float64(d.Count()))
}

// Percentile returns the duration that p percent of all do not exceed, within
// the histogram's three digits; p is between 0 and 100.
func (d *Distribution) Percentile(p float64) time.Duration {
	// The histogram returns the end of the right duration's bucket, which may be beyond the
	// maximum.
	return min(time.Duration(d.hist.ValueAtPercentile(p)), d.max)
}

// A Bar is a range of durations and how many were in it.
type Bar struct {
	From, To time.Duration // From < d <= To
	Count    int64
}

// Bars returns the histogram's own buckets that are not empty, in order.
func (d *Distribution) Bars() []Bar {
	var bars []Bar
	for _, b := range d.hist.Distribution() {
		if b.Count > 0 {
			bars = append(bars, Bar{time.Duration(b.From), time.Duration(b.To), b.Count})
		}
	}
	return bars
}

// WriteHgrm writes the percentile distribution in milliseconds, in the text
// form for the plotters of HdrHistogram.
func (d *Distribution) WriteHgrm(w io.Writer) error {
	_, err := d.hist.PercentilesPrint(w, 5, float64(time.Millisecond))
	return err
}
