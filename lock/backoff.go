package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// The pause before a request is sent again doubles from minBackoff to maxBackoff.
const (
	minBackoff = 20 * time.Millisecond
	maxBackoff = 640 * time.Millisecond
)

func pauseAfter(try int) time.Duration { return backoff.Pause(try, minBackoff, maxBackoff) }

// transient reports whether an error may disappear by itself.
func transient(err error) bool { return errors.Is(err, ErrUnavailable) }

// withRetry calls once until it succeeds or returns an error for which again reports
// false. It backs off between calls. It returns the last error if the next call would
// begin later than limit after the first. If ctx or the locker ends during a pause, the
// error also carries that cause.
func (l *Locker) withRetry(ctx context.Context, limit time.Duration, again func(error) bool, once func() error) error {
	start := time.Now()
	for try := 0; ; try++ {
		err := once()
		if err == nil || !again(err) {
			return err
		}
		pause := pauseAfter(try)
		if time.Since(start)+pause > limit {
			return err
		}
		if cause := l.sleep(ctx, pause); cause != nil {
			return fmt.Errorf("%w (last error: %w)", cause, err)
		}
	}
}

// sleep waits for d. It returns the cause if ctx or the locker ends first.
func (l *Locker) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closed.Done():
		return ErrClosed
	}
}
