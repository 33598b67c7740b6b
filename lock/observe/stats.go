package observe

import (
	"log/slog"

	"github.com/leasewheel/leasewheel/renewal"
)

// Stats holds the present state and the counters of a locker.
type Stats struct {
	// Leases has the leases held, their renewals, and their losses by cause.
	Leases renewal.Stats
	// Granted, HandedOff, Refused and Failed count the acquisitions with that [Outcome]. What
	// is not reported to an [Observer] is not counted.
	Granted, HandedOff, Refused, Failed int64
	// ByRelease counts those of Granted that another owner's release has made, without a
	// further request.
	ByRelease int64
	// Waiting is the number of acquisitions and deferred functions in a queue now.
	Waiting int
	// Deferred is the number of deferred functions that wait or run now.
	Deferred int
	// Unreleased is the number of holds whose release is repeated in the background now.
	// It grows in an outage of the store.
	Unreleased int
}

// LogValue implements [slog.LogValuer].
func (s Stats) LogValue() slog.Value {
	return slog.GroupValue(
		slog.Any("leases", s.Leases),
		slog.Int64("granted", s.Granted),
		slog.Int64("by_release", s.ByRelease),
		slog.Int64("handed_off", s.HandedOff),
		slog.Int64("refused", s.Refused),
		slog.Int64("failed", s.Failed),
		slog.Int("waiting", s.Waiting),
		slog.Int("deferred", s.Deferred),
		slog.Int("unreleased", s.Unreleased),
	)
}
