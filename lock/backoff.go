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
// false. It backs off between calls. The context of the calls ends at the limit, which
// bounds all of them together. If it cuts a later call short, or no further call can begin
// in time, the error is that of the latest whole call. If ctx or the locker ends during a
// pause, the error also carries that cause.
func (l *Locker) withRetry(ctx context.Context, limit time.Duration, again func(error) bool, once func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	by, _ := limited.Deadline()
	var whole error
	for try := 0; ; try++ {
		err := once(limited)
		if err == nil || !again(err) {
			return err
		}
		if whole != nil && !time.Now().Before(by) {
			err = whole
		}
		whole = err
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
