package lockotel

import (
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/otel/attribute"

	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// changes sets one integer in *stats after the other to 7, and returns which points have
// that value then, by field; for an array, those of all its elements.
func changes(t *testing.T, stats any, points func() []point) map[string][]string {
	t.Helper()
	changed := make(map[string][]string)
	try := func(name string, number reflect.Value) {
		switch {
		case number.CanInt():
			number.SetInt(7)
		case number.CanUint():
			number.SetUint(7)
		case number.CanFloat():
			number.SetFloat(7)
		default:
			return // a struct, which is tested by itself
		}
		changed[name] = append(changed[name], []string{}...)
		for _, p := range points() {
			if p.value == 7 {
				changed[name] = append(changed[name], p.instrument+attributesOf(attribute.NewSet(p.attributes...)))
			}
		}
		number.SetZero()
	}
	s := reflect.ValueOf(stats).Elem()
	for i := range s.NumField() {
		name, field := s.Type().Field(i).Name, s.Field(i)
		if field.Kind() != reflect.Array {
			try(name, field)
			continue
		}
		for i := range field.Len() {
			try(name, field.Index(i))
		}
	}
	return changed
}

// Every number of observe.Stats, renewal.Stats and wheel.Stats is the value of one instrument,
// and of the right one, apart from those in the histograms and the lags of one moment.
func TestEveryNumberIsExported(t *testing.T) {
	one := func(name string, attributes string) []string { return []string{name + "{" + attributes + "}"} }
	const locker, watchdog, timer = `locker="x"`, `watchdog="x"`, `wheel="x"`
	var none []string

	var locks observe.Stats
	assert.Equal(t, map[string][]string{
		"Granted":    one("leasewheel.lock.acquisitions", locker+`,outcome="granted"`),
		"HandedOff":  one("leasewheel.lock.acquisitions", locker+`,outcome="handed_off"`),
		"Refused":    one("leasewheel.lock.acquisitions", locker+`,outcome="refused"`),
		"Failed":     one("leasewheel.lock.acquisitions", locker+`,outcome="failed"`),
		"ByRelease":  one("leasewheel.lock.grants_by_release", locker),
		"Waiting":    one("leasewheel.lock.waiters", locker),
		"Deferred":   one("leasewheel.lock.deferred_functions", locker),
		"Unreleased": one("leasewheel.lock.unreleased_holds", locker),
	}, changes(t, &locks, func() []point { return lockPoints("x", locks) }))

	var lost []string
	for _, cause := range []string{"expired_here", "taken_over", "deleted", "store_unreachable", "held_too_long",
		"holder_not_alive", "no_heartbeat", "context_ended", "watchdog_closed"} {
		lost = append(lost, one("leasewheel.leases.lost", `cause="`+cause+`",`+watchdog)...)
	}
	var leases renewal.Stats
	assert.Equal(t, map[string][]string{
		"Held":     one("leasewheel.leases.held", watchdog),
		"Queued":   one("leasewheel.leases.queued", watchdog),
		"Suspect":  one("leasewheel.leases.suspect", watchdog),
		"InFlight": one("leasewheel.renewal.requests_in_flight", watchdog),
		"Groups":   one("leasewheel.renewal.groups", watchdog),
		"Silent":   one("leasewheel.renewal.groups_silent", watchdog),
		"Watched":  one("leasewheel.leases.watched", watchdog),
		"Released": one("leasewheel.leases.released", watchdog),
		"Lost":     lost,
		"Due":      one("leasewheel.renewals.due", watchdog),
		"Sent":     none, "Batches": none, "Sizes": none, "Remaining": none, "RemainingSum": none, // see TestHistograms
		"Renewed":  one("leasewheel.renewals.confirmed", watchdog),
		"Retried":  one("leasewheel.renewals.retried", watchdog),
		"LastLag":  none,
		"WorstLag": none,
		"Jumps":    one("leasewheel.clock.jumps", watchdog),
		"Panics":   one("leasewheel.renewal.panics", watchdog),
	}, changes(t, &leases, func() []point { return leasePoints("x", leases) }))

	var timeouts wheel.Stats
	assert.Equal(t, map[string][]string{
		"Pending":   one("leasewheel.wheel.pending_timeouts", timer),
		"Scheduled": one("leasewheel.wheel.scheduled", timer),
		"Fired":     one("leasewheel.wheel.fired", timer),
		"Cancelled": one("leasewheel.wheel.cancelled", timer),
		"Rejected":  one("leasewheel.wheel.rejected", timer),
		"Panics":    one("leasewheel.wheel.panics", timer),
		"LastLag":   none,
		"WorstLag":  none,
		"Overruns":  one("leasewheel.wheel.overruns", timer),
	}, changes(t, &timeouts, func() []point { return points(exporter.OfWheels, timeouts, wheelKey.String("x")) }))
}

// Names of instruments have no name that is another's namespace.
func TestNamespaces(t *testing.T) {
	for _, i := range instruments {
		for _, other := range instruments {
			assert.False(t, strings.HasPrefix(other.Name, i.Name+"."), "%s is a namespace of %s", i.Name, other.Name)
		}
	}
}
