package redisstore

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Relay returns the logger that go-redis is given.
func Relay(to *slog.Logger) interface {
	Printf(ctx context.Context, format string, v ...any)
} {
	return slogLogger{to}
}

// MaxInFlight is how many batches are in flight to one node at most.
const MaxInFlight = maxInFlight

// InFlight returns how many batches are in flight.
func (s *Store) InFlight() int { return s.sum(func(b *batcher) int { return b.inFlight }) }

// Waiting returns how many requests wait to leave.
func (s *Store) Waiting() int { return s.sum(func(b *batcher) int { return len(b.queued) }) }

// RefuseShared sets when the server has refused a shared run.
func (s *Store) RefuseShared(at time.Time) { s.transport.refusedShared.Store(&at) }

// sum adds a number of each batcher.
func (s *Store) sum(of func(*batcher) int) (n int) {
	s.transport.mu.Lock()
	all := slices.Collect(maps.Values(s.transport.batchers))
	s.transport.mu.Unlock()
	for _, b := range all {
		b.mu.Lock()
		n += of(b)
		b.mu.Unlock()
	}
	return n
}

// SetPageTimeout sets the time limit of each request of a list.
func (s *Store) SetPageTimeout(d time.Duration) { s.pageTimeout = d }

// SetMoveTimeout sets the time limit of moving a channel of a broken connection.
func (s *Store) SetMoveTimeout(d time.Duration) { s.subscriber.MoveTimeout = d }

// Channels returns the channels to which a waiter for the hold subscribes on a single server.
func Channels(h *driver.Hold) []string {
	var channels []string
	for _, handler := range kinds[h.Kind].handlers(new(Store), key(h.Name), h) {
		channels = append(channels, string(handler.channel))
	}
	return channels
}
