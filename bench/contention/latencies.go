package contention

import (
	"encoding/json"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	longest = time.Hour // longer durations count as this
	digits  = 2         // significant, of a duration
)

// Latencies is an HDR histogram of durations with two significant digits. Processes exchange
// it as JSON.
type Latencies struct{ hist *hdrhistogram.Histogram }

// NewLatencies returns an empty histogram.
func NewLatencies() *Latencies {
	return &Latencies{hdrhistogram.New(1, int64(longest), digits)}
}

// Add counts a duration; a negative one counts as zero.
func (l *Latencies) Add(d time.Duration) {
	_ = l.hist.RecordValue(int64(min(max(d, 0), longest))) // fails beyond the range alone
}

// Merge adds all that other has counted.
func (l *Latencies) Merge(other *Latencies) { l.hist.Merge(other.hist) }

// Count returns how many durations were counted.
func (l *Latencies) Count() int64 { return l.hist.TotalCount() }

// Percentile returns the duration that p percent of all do not exceed, or zero if there are
// none.
func (l *Latencies) Percentile(p float64) time.Duration {
	return time.Duration(l.hist.ValueAtPercentile(p))
}

// Max returns the longest duration.
func (l *Latencies) Max() time.Duration { return time.Duration(l.hist.Max()) }

// MarshalJSON implements [json.Marshaler].
func (l *Latencies) MarshalJSON() ([]byte, error) { return json.Marshal(l.hist.Export()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Latencies) UnmarshalJSON(text []byte) error {
	var s hdrhistogram.Snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	l.hist = hdrhistogram.Import(&s)
	return nil
}
