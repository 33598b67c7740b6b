package redisstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/check"
	"github.com/leasewheel/leasewheel/lock/redisstore/internal/transport"
)

// Relay returns the logger that go-redis is given.
func Relay(to *slog.Logger) interface {
	Printf(ctx context.Context, format string, v ...any)
} {
	return newSlogLogger(to)
}

// MaxInFlight is how many batches are in flight to one node at most.
const MaxInFlight = transport.MaxInFlight

// InFlight returns how many batches are in flight.
func (s *Store) InFlight() int {
	inFlight, _ := s.transport.Load()
	return inFlight
}

// Waiting returns how many requests wait to leave.
func (s *Store) Waiting() int {
	_, queued := s.transport.Load()
	return queued
}

// Epoch returns the number of the present epoch, between two failovers.
func (s *Store) Epoch() int64 { return s.transport.Epoch() }

// SetUnbounded sets the time limit of a request whose context has none.
func (s *Store) SetUnbounded(d time.Duration) { s.transport.Unbounded = d }

// SetPageTimeout sets the time limit of each request of a list.
func (s *Store) SetPageTimeout(d time.Duration) { s.pageTimeout = d }

// SetRecordsTimeout sets the time limit of the search for the records of clients.
func (s *Store) SetRecordsTimeout(d time.Duration) { s.recordsTimeout = d }

// SetCheckTimeout sets the time limits of a check: of a first answer, of a message, and of the whole.
func (s *Store) SetCheckTimeout(answer, message time.Duration) {
	s.checkLimits = check.Limits{Answer: answer, Message: message, Whole: 10 * answer}
}

// SetCheckEvery sets the interval of the checks of a subscription's connection.
func (s *Store) SetCheckEvery(d time.Duration) { s.subscriber.CheckEvery = d }

// SetMoveTimeout sets the time limit of moving a channel of a broken connection.
func (s *Store) SetMoveTimeout(d time.Duration) { s.subscriber.MoveTimeout = d }

// Channels returns the channels to which a waiter for the hold subscribes on a single server.
func Channels(h *driver.Hold) []string {
	var channels []string
	for _, handler := range kinds[h.Kind].handlers(request{Hold: h, store: new(Store), at: key(h.Name)}) {
		channels = append(channels, string(handler.channel))
	}
	return channels
}

// ServerName is the name by which a server at an address is verified.
var ServerName = serverName
