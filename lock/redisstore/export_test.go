package redisstore

import (
	"context"
	"log/slog"
)

// Relay returns the logger that go-redis is given.
func Relay(to *slog.Logger) interface {
	Printf(ctx context.Context, format string, v ...any)
} {
	return relay{to}
}

// Waiting returns how many requests wait for a flight.
func (s *Store) Waiting() (n int) {
	s.convoys.mu.Lock()
	defer s.convoys.mu.Unlock()
	for _, v := range s.convoys.to {
		v.mu.Lock()
		n += len(v.waiting)
		v.mu.Unlock()
	}
	return n
}
