package redistest

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fatal ends the waiting in eventually: another call of check cannot help.
type fatal struct{ error }

// The pauses between two calls of a check grow from firstPause by a quarter each to
// longestPause. A server that starts answers within some of the first; a cluster needs 2 s,
// and asking it without pause would cost more than its tests.
const firstPause, longestPause = 2 * time.Millisecond, 40 * time.Millisecond

// eventually calls check until it returns nil, and returns its last error after limit. It
// is for states of other processes, which send no notification.
func eventually(limit time.Duration, check func() error) error {
	pause := firstPause
	for begun := time.Now(); ; pause = min(pause+pause/4, longestPause) {
		err := check()
		if err == nil {
			return nil
		}
		if final, ok := errors.AsType[fatal](err); ok {
			return final.error
		}
		if time.Since(begun) > limit {
			return fmt.Errorf("redistest: not ready after %v: %w", limit, err)
		}
		time.Sleep(pause)
	}
}

// checkTimeout bounds one call of a check, which may query each of ten servers on a connection of its
// own: a busy machine takes more than a second for that.
const checkTimeout = 10 * time.Second

// await waits for a state of servers that are known to run, and fails t if it does not
// come.
func await(t TB, check func(ctx context.Context) error) {
	t.Helper()
	err := eventually(readyTimeout, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
		defer cancel()
		return check(ctx)
	})
	if err != nil {
		t.Fatalf("%v", err)
	}
}
