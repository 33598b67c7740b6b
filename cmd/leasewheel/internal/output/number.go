package output

import (
	"fmt"
	"math"
	"time"
)

// Round keeps three significant digits, the precision of a histogram.
func Round(d time.Duration) time.Duration {
	if d <= 0 {
		return d
	}
	unit := math.Pow10(max(int(math.Log10(float64(d)))-2, 0))
	return time.Duration(math.Round(float64(d)/unit) * unit)
}

// Grouped writes a number with a comma after every three digits.
func Grouped(n int64) string {
	if n < 0 {
		return "-" + Grouped(-n)
	}
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", Grouped(n/1000), n%1000)
}

// Counted returns a number with its noun, in the plural unless the number is 1.
func Counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return Grouped(n) + " " + noun
}

// Seconds drops what changes faster than a person reads.
func Seconds(d time.Duration) time.Duration { return max(d, 0).Truncate(time.Second) }
