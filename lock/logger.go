package lock

import (
	"context"
	"log/slog"
)

// maxMessages bounds the goroutines of a [Config.Logger] that blocks. Further messages are
// dropped meanwhile.
const maxMessages = 1000

// logger writes each message in a goroutine of its own: [Config.Logger] is the user's, and may
// block, as on a pipe that is full.
type logger struct {
	to      *slog.Logger
	writing activity
}

func (l *logger) warn(text string, args ...any) { l.write(slog.LevelWarn, text, args) }

func (l *logger) error(text string, args ...any) { l.write(slog.LevelError, text, args) }

func (l *logger) write(level slog.Level, text string, args []any) {
	if l.writing.number() >= maxMessages {
		return
	}
	l.writing.begin()
	go func() {
		defer l.writing.end()
		l.to.Log(context.Background(), level, text, args...)
	}()
}
