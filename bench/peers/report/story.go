package main

// A line is a row of the first table: a figure of ours beside another's, and beside a floor,
// which does less than a timer or a lock must.
type line struct {
	what, measured, unit string
	impl, peer, floor    string
}

// story are the figures to remember.
var story = []line{
	{"schedule a timeout beside a million", "Schedule/pending=1M", "ns/op", "wheel", "runtime", ""},
	{"schedule and cancel one", "ScheduleCancel/pending=1M", "ns/op", "wheel", "runtime", ""},
	{"heap for a pending timeout", "Memory", "B/timeout", "wheel", "runtime", ""},
	{"a garbage collection beside a million: CPU time", "Collect", "cpu-ns/op", "wheel", "runtime", ""},
	{"a million due at once: CPU time", "Burst", "cpu-ns/burst", "wheel", "runtime", ""},
	{"lateness by a tick of 1 ms, idle: p99", "Lateness/tick=1ms/load=idle", "p99-ns", "wheel", "runtime", ""},
	{"acquire and release, 1 goroutine: p50", "Pairs/goroutines=1", "p50-ns", "leasewheel", "redsync", "grouped"},
	{"a second, 16 goroutines", "Pairs/goroutines=16", "pairs/s", "leasewheel", "redsync", "grouped"},
	{"a second, 128 goroutines", "Pairs/goroutines=128", "pairs/s", "leasewheel", "redsync", "grouped"},
	{"hand-overs a second, 16 waiters of 4 processes", "HandOver/waiters=16/processes=4/hold=0s", "hand-overs/s", "leasewheel", "rueidislock", "directed"},
	{"renew one of 10,000 locks: the client's CPU time", "Held/locks=10000/ttl=3s", "cpu-ns/renewal", "leasewheel", "tickers", "batched"},
	{"heap and stack for a held lock", "Held/locks=100000/ttl=30s", "B/lock", "leasewheel", "", "batched"},
}

// cells fills in the row. There are none if it was not measured.
func (l line) cells(r *results) []string {
	of := func(impl string) string {
		v, ok := r.median(point{l.measured, impl, 0, l.unit})
		if !ok {
			return "–"
		}
		return figure(v, l.unit)
	}
	ours := of(l.impl)
	if ours == "–" {
		return nil
	}
	cells := []string{l.what, ours}
	for _, impl := range []string{l.peer, l.floor} {
		text := of(impl)
		if text != "–" {
			text += " " + impl
		}
		cells = append(cells, text)
	}
	return cells
}
