package lock

import "github.com/leasewheel/leasewheel/lock/observe"

// Stats returns the locker's present state and counters. It sends no request.
func (l *Locker) Stats() observe.Stats {
	s := observe.Stats{
		Leases:     l.watchdog.Stats(),
		Granted:    l.outcomes.granted.Load(),
		HandedOff:  l.outcomes.handedOff.Load(),
		ByRelease:  l.outcomes.byRelease.Load(),
		Refused:    l.outcomes.refused.Load(),
		Failed:     l.outcomes.failed.Load(),
		Unreleased: l.cleanup.pending.number(),
	}
	l.mu.Lock()
	s.Waiting, s.Deferred = l.waiters, len(l.deferral.functions)
	l.mu.Unlock()
	return s
}
