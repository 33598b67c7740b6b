package renewal

import "time"

// Until returns the instant up to which a lease may be trusted that was requested at t0
// and granted for ttl:
//
//	t0 + ttl − (ttl/100 + 2 ms)
//
// t0 must be read before the request is sent. A grant whose Until has passed when the
// reply comes is worthless. A [Watchdog] ends a lease a tick of its wheel earlier; see
// [Lease.Until].
func Until(t0 time.Time, ttl time.Duration) time.Time {
	return t0.Add(validity(ttl))
}

// validity is how long the watchdog trusts a lease from t0 on. It is a tick less than
// [Until] allows, as the timeout at its end may expire a tick late. It is negative for
// the shortest TTLs: those are over before they begin.
func (w *Watchdog) validity(ttl time.Duration) time.Duration {
	return validity(ttl) - w.wheel.Tick()
}

// validity is how long a lease may be trusted from t0 on.
func validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}
