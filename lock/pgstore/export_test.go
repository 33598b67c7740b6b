package pgstore

import (
	"context"
	"time"
)

// SetReading sets the last reading of the server's clock. The zero time has it read anew.
func (s *Store) SetReading(at time.Time) {
	if at.IsZero() {
		s.clock.reading.Store(nil)
		return
	}
	s.clock.reading.Store(&reading{sent: time.Now(), at: at})
}

// AnswerOf returns what an error means for a request that was sent.
func AnswerOf(err error) error { return answerOf(err, true) }

// Sweep removes what has ended so long ago.
func (s *Store) Sweep(ctx context.Context, kept time.Duration) (left bool, err error) {
	return s.sweep(ctx, 0, kept)
}

// RunSweeper makes a sweep. None is planned.
func (s *Store) RunSweeper() {
	s.work.Add(1)
	s.sweeper.run()
}

// SweepPlanned reports whether a sweep is planned that has not begun.
func (s *Store) SweepPlanned() bool {
	s.sweeper.mu.Lock()
	defer s.sweeper.mu.Unlock()
	return s.sweeper.timer != nil
}

// SetOldSnapshot sets from which age on Check reports a transaction.
func (s *Store) SetOldSnapshot(age time.Duration) { s.oldSnapshot = age }

// SetProbeEvery sets how often a silent connection is tried.
func (s *Store) SetProbeEvery(every time.Duration) { s.listener.every = every }

// PendingNames returns for how many names rows of waits may have to change.
func (s *Store) PendingNames() int {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return len(s.listener.changes)
}
