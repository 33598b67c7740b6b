package redisstore

import (
	"context"
	"log/slog"
)

// Relay returns the logger that go-redis is given.
func Relay(to *slog.Logger) interface {
	Printf(ctx context.Context, format string, v ...any)
} {
	return slogLogger{to}
}

// Waiting returns how many requests wait to leave.
func (s *Store) Waiting() (n int) {
	s.batchers.mu.Lock()
	defer s.batchers.mu.Unlock()
	for _, b := range s.batchers.to {
		b.mu.Lock()
		n += len(b.queued)
		b.mu.Unlock()
	}
	return n
}
