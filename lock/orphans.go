package lock

import (
	"context"
	"sync"
	"time"
)

const (
	mostOrphans  = 10_000 // beyond it the oldest is left to its TTL
	mostSweepers = 4
)

// orphan is a hold that the store may have though nobody here wants it.
type orphan struct {
	hold Hold
	// doubtful: a request for the hold may still be on its way, so that one clear
	// answer is not the last word, and a second is asked for later.
	doubtful bool
	// by is when the store has dropped the hold by itself.
	by  time.Time
	try int
}

// orphans sweeps up after acquisitions and releases whose outcome nobody waited
// for or could learn: a cancelled acquisition must not block others for a TTL.
// Goroutines run only while there is something to sweep.
type orphans struct {
	locker *Locker
	ctx    context.Context // bounds the sweepers' requests
	cancel context.CancelFunc
	work   sync.WaitGroup // the sweepers

	mu       sync.Mutex
	line     []orphan // guarded by mu
	sweepers int      // guarded by mu; at most mostSweepers
	stopped  bool     // guarded by mu; nothing is taken any more
}

func (o *orphans) init(l *Locker) {
	o.locker = l
	o.ctx, o.cancel = context.WithCancel(context.Background())
}

// take has the hold ended at the store, in the background, until the store has
// said clearly that it is gone or must have dropped it by itself.
func (o *orphans) take(h *Hold, doubtful bool) {
	gone := orphan{hold: *h, doubtful: doubtful, by: time.Now().Add(h.TTL + o.locker.config.RequestTimeout)}
	gone.hold.Count = 0
	o.put(gone)
}

func (o *orphans) put(gone orphan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	if len(o.line) >= mostOrphans {
		o.line = o.line[1:]
	}
	o.line = append(o.line, gone)
	if o.sweepers < mostSweepers {
		o.sweepers++
		o.work.Go(o.sweep)
	}
}

// sweep is one sweeper: it works until the line is empty.
func (o *orphans) sweep() {
	for {
		o.mu.Lock()
		if len(o.line) == 0 {
			o.sweepers--
			o.mu.Unlock()
			return
		}
		gone := o.line[0]
		o.line = o.line[1:]
		o.mu.Unlock()
		o.end(gone)
	}
}

// end tells the store once, and puts the orphan off if that was not the last word.
func (o *orphans) end(gone orphan) {
	l := o.locker
	ctx, cancel := l.bound(o.ctx, gone.hold.TTL)
	stop := context.AfterFunc(o.ctx, cancel)
	_, err := l.store.Release(ctx, &gone.hold)
	stop()
	cancel()
	var pause time.Duration
	switch {
	case err != nil:
		pause = backoff(gone.try)
		gone.try++
	case gone.doubtful:
		pause = l.config.RequestTimeout
		gone.doubtful = false
	default:
		return
	}
	if time.Now().Add(pause).After(gone.by) {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	if _, err := l.wheel.Schedule(pause, func() { o.put(gone) }); err != nil {
		l.config.Logger.Warn("lock: a hold that nobody wants is left to its TTL", "name", gone.hold.Name, "err", err)
	}
}

// stop lets the sweepers finish what is in line, as long as ctx allows. What was
// put off is left to its TTL.
func (o *orphans) stop(ctx context.Context) error {
	o.mu.Lock()
	o.stopped = true
	o.mu.Unlock()
	defer o.cancel()
	swept := make(chan struct{})
	go func() {
		o.work.Wait()
		close(swept)
	}()
	select {
	case <-swept:
		return nil
	case <-ctx.Done():
		o.cancel()
		<-swept
		return context.Cause(ctx)
	}
}
