package lockprom

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// collected is a collector of given statistics, called "x".
type collected func(ch chan<- prometheus.Metric)

func (c collected) Describe(ch chan<- *prometheus.Desc) { New(Config{}).Describe(ch) }
func (c collected) Collect(ch chan<- prometheus.Metric) { c(ch) }

// numbersIn returns pointers to the integers and floats in a struct, by field; the elements
// of an array by index.
func numbersIn(t *testing.T, s reflect.Value) map[string]reflect.Value {
	t.Helper()
	numbers := make(map[string]reflect.Value)
	for i := range s.NumField() {
		name, field := s.Type().Field(i).Name, s.Field(i)
		switch {
		case field.Kind() == reflect.Array:
			for i := range field.Len() {
				numbers[name+"["+string(rune('a'+i))+"]"] = field.Index(i)
			}
		case field.CanInt(), field.CanUint(), field.CanFloat():
			numbers[name] = field
		case field.Kind() != reflect.Struct: // those are tested by themselves
			t.Errorf("the field %s is not tested", name)
		}
	}
	return numbers
}

func set(number reflect.Value, n int) {
	switch {
	case number.CanInt():
		number.SetInt(int64(n))
	case number.CanUint():
		number.SetUint(uint64(n))
	default:
		number.SetFloat(float64(n))
	}
}

// changes sets one number of *stats after the other to 7, and returns which series that are
// not buckets change to what; for numbers in an array all of the array.
func changes(t *testing.T, stats any, collect collected) map[string]map[string]float64 {
	t.Helper()
	before := series(scrape(t, collect))
	changed := make(map[string]map[string]float64)
	for name, number := range numbersIn(t, reflect.ValueOf(stats).Elem()) {
		set(number, 7)
		name, _, _ = strings.Cut(name, "[")
		if changed[name] == nil {
			changed[name] = make(map[string]float64)
		}
		for s, value := range series(scrape(t, collect)) {
			if value != before[s] && !strings.Contains(s, "le=") {
				changed[name][s] = value
			}
		}
		set(number, 0)
	}
	return changed
}

// Every number of observe.Stats, renewal.Stats and wheel.Stats is the value of one series, and
// of the right one. The last and worst lags are not: they are of one moment.
func TestEveryNumberIsExported(t *testing.T) {
	one := func(name, labels string) map[string]float64 {
		return map[string]float64{name + "{" + labels + "}": 7}
	}
	none := map[string]float64{}

	var locks observe.Stats
	assert.Equal(t, map[string]map[string]float64{
		"Granted":    one("leasewheel_lock_acquisitions_total", `locker="x",outcome="granted"`),
		"HandedOff":  one("leasewheel_lock_acquisitions_total", `locker="x",outcome="handed_off"`),
		"Refused":    one("leasewheel_lock_acquisitions_total", `locker="x",outcome="refused"`),
		"Failed":     one("leasewheel_lock_acquisitions_total", `locker="x",outcome="failed"`),
		"ByRelease":  one("leasewheel_lock_grants_by_release_total", `locker="x"`),
		"Waiting":    one("leasewheel_lock_waiters", `locker="x"`),
		"Deferred":   one("leasewheel_lock_deferred_functions", `locker="x"`),
		"Unreleased": one("leasewheel_lock_unreleased_holds", `locker="x"`),
	}, changes(t, &locks, func(ch chan<- prometheus.Metric) { collectLocker(ch, "x", locks) }))

	const watchdog = `watchdog="x"`
	lost := make(map[string]float64)
	for _, cause := range []string{"expired_here", "taken_over", "deleted", "store_unreachable", "held_too_long",
		"holder_not_alive", "no_heartbeat", "context_ended", "watchdog_closed"} {
		lost[`leasewheel_leases_lost_total{cause="`+cause+`",watchdog="x"}`] = 7
	}
	var leases renewal.Stats
	assert.Equal(t, map[string]map[string]float64{
		"Held":     one("leasewheel_leases_held", watchdog),
		"Queued":   one("leasewheel_leases_queued", watchdog),
		"Suspect":  one("leasewheel_leases_suspect", watchdog),
		"InFlight": one("leasewheel_renewal_requests_in_flight", watchdog),
		"Groups":   one("leasewheel_renewal_groups", watchdog),
		"Silent":   one("leasewheel_renewal_groups_silent", watchdog),
		"Watched":  one("leasewheel_leases_watched_total", watchdog),
		"Released": one("leasewheel_leases_released_total", watchdog),
		"Lost":     lost,
		"Due":      one("leasewheel_renewals_due_total", watchdog),
		"Sent":     one("leasewheel_renewal_request_leases_sum", watchdog),
		"Batches":  one("leasewheel_renewal_request_leases_count", watchdog),
		"Renewed": {
			"leasewheel_renewals_confirmed_total{" + watchdog + "}":      7,
			"leasewheel_renewal_remaining_ratio_count{" + watchdog + "}": 7,
		},
		"Retried":      one("leasewheel_renewals_retried_total", watchdog),
		"Sizes":        none, // buckets alone
		"Remaining":    none,
		"RemainingSum": one("leasewheel_renewal_remaining_ratio_sum", watchdog),
		"LastLag":      none,
		"WorstLag":     none,
		"Jumps":        one("leasewheel_clock_jumps_total", watchdog),
		"Panics":       one("leasewheel_renewal_panics_total", watchdog),
	}, changes(t, &leases, func(ch chan<- prometheus.Metric) { collectLeases(ch, "x", leases) }))

	var timeouts wheel.Stats
	assert.Equal(t, map[string]map[string]float64{
		"Pending":   one("leasewheel_wheel_pending_timeouts", `wheel="x"`),
		"Scheduled": one("leasewheel_wheel_scheduled_total", `wheel="x"`),
		"Fired":     one("leasewheel_wheel_fired_total", `wheel="x"`),
		"Cancelled": one("leasewheel_wheel_cancelled_total", `wheel="x"`),
		"Rejected":  one("leasewheel_wheel_rejected_total", `wheel="x"`),
		"Panics":    one("leasewheel_wheel_panics_total", `wheel="x"`),
		"LastLag":   none,
		"WorstLag":  none,
		"Overruns":  one("leasewheel_wheel_overruns_total", `wheel="x"`),
	}, changes(t, &timeouts, func(ch chan<- prometheus.Metric) {
		collectWheel(ch, "x", exporter.WheelStats{Stats: timeouts})
	}))
}

// Histograms keep their buckets: what was counted up to a bound is at or below it.
func TestBuckets(t *testing.T) {
	var leases renewal.Stats
	for i := range leases.Sizes {
		leases.Sizes[i] = int64(i + 1)
		leases.Batches += int64(i + 1)
	}
	for i := range leases.Remaining {
		leases.Remaining[i] = int64(i + 1)
		leases.Renewed += int64(i + 1)
	}
	for _, lag := range []time.Duration{0, time.Millisecond, time.Millisecond, time.Second, time.Hour} {
		leases.Lags.Add(lag)
	}
	values := series(scrape(t, collected(func(ch chan<- prometheus.Metric) {
		collectLeases(ch, "x", leases)
		collectWheel(ch, "y", exporter.WheelStats{Tick: 10 * time.Millisecond, Lags: leases.Lags})
	})))
	for name, want := range map[string]float64{
		`leasewheel_renewal_request_leases_bucket{watchdog="x",le="1"}`:     1,
		`leasewheel_renewal_request_leases_bucket{watchdog="x",le="2"}`:     1 + 2,
		`leasewheel_renewal_request_leases_bucket{watchdog="x",le="65536"}`: 17 * 18 / 2,
		`leasewheel_renewal_request_leases_bucket{watchdog="x",le="+Inf"}`:  17 * 18 / 2,
		`leasewheel_renewal_remaining_ratio_bucket{watchdog="x",le="0.1"}`:  1,
		`leasewheel_renewal_remaining_ratio_bucket{watchdog="x",le="0.5"}`:  1 + 2 + 3 + 4 + 5,
		`leasewheel_renewal_remaining_ratio_bucket{watchdog="x",le="1"}`:    55,
		`leasewheel_renewal_lag_seconds_bucket{watchdog="x",le="6.4e-05"}`:  1,
		`leasewheel_renewal_lag_seconds_bucket{watchdog="x",le="0.000512"}`: 1,
		`leasewheel_renewal_lag_seconds_bucket{watchdog="x",le="0.001024"}`: 3,
		`leasewheel_renewal_lag_seconds_bucket{watchdog="x",le="4.194304"}`: 4,
		`leasewheel_renewal_lag_seconds_bucket{watchdog="x",le="+Inf"}`:     5,
		`leasewheel_renewal_lag_seconds_sum{watchdog="x"}`:                  3601.002,
		`leasewheel_wheel_lag_seconds_bucket{wheel="y",le="0.001024"}`:      3,
		`leasewheel_wheel_lag_seconds_count{wheel="y"}`:                     5,
		`leasewheel_wheel_lag_seconds_sum{wheel="y"}`:                       3601.002,
		`leasewheel_wheel_tick_seconds{wheel="y"}`:                          0.01,
	} {
		got, ok := values[name]
		assert.True(t, ok && got == want, "%s is %v, want %v", name, got, want)
	}
}
