package lock

import (
	"context"
	"errors"
	"time"
)

// release lowers the owner's holds to h.Count at the store. It is sent again like
// an acquisition. Once an attempt may have been carried out unheard, the answer
// that the owner holds nothing is taken for its success: it is, unless the lock was
// lost in the instant before. held is false if the lock was certainly lost.
//
// If the store cannot be told within ctx and [Config.RetryFor], the orphans'
// sweep goes on trying, unless the owner keeps holds: the sweep would end those, too,
// and the next count that the store is told of makes up for this one.
func (l *Locker) release(ctx context.Context, h *Hold) (held bool, err error) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), l.config.RequestTimeout)
		defer cancel()
	}
	start := time.Now()
	doubtful := false
	for try := 0; ; try++ {
		bounded, cancel := l.bound(ctx, h.TTL)
		held, err = l.store.Release(bounded, h)
		cancel()
		if err == nil {
			return held || doubtful, nil
		}
		doubtful = doubtful || !errors.Is(err, ErrNotDone)
		pause := backoff(try)
		if !errors.Is(err, ErrUnavailable) || time.Since(start)+pause > l.config.RetryFor ||
			l.sleep(ctx, pause) != nil {
			if h.Count == 0 {
				l.orphans.take(h, true)
			}
			return false, err
		}
	}
}
