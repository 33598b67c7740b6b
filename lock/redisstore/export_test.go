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
