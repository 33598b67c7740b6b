package renewal

import "time"

// Until returns the instant up to which a lease may be trusted that was asked
// for at t0 and granted for ttl:
//
//	t0 + ttl − (ttl/100 + 2 ms)
//
// t0 must have been read before the request was sent. A grant whose Until has
// passed when the reply comes is worth nothing.
func Until(t0 time.Time, ttl time.Duration) time.Time {
	return t0.Add(validity(ttl))
}

// validity is how long a lease may be trusted from t0 on. It is negative for the
// shortest TTLs: those are over before they begin.
func validity(ttl time.Duration) time.Duration {
	return ttl - ttl/100 - 2*time.Millisecond
}
