package drivertest

import "testing"

// verdict is a test that only notes whether it failed.
type verdict struct {
	testing.TB
	failed bool
}

func (v *verdict) Helper()               {}
func (v *verdict) Errorf(string, ...any) { v.failed = true }

// A history in which two clients have the lock at once, or in which one is refused a lock
// that is free, has no explanation.
func TestHistoriesOfABrokenLock(t *testing.T) {
	for name, test := range map[string]struct {
		queued bool
		run    func(h *history)
		broken bool
	}{
		"one after the other": {run: func(h *history) {
			for client := 1; client <= 3; client++ {
				h.record(client, true, granted)
				h.record(client, false, granted)
			}
		}},
		"two at once": {broken: true, run: func(h *history) {
			h.record(1, true, granted)
			h.record(2, true, granted)
		}},
		"refused though free": {broken: true, run: func(h *history) { h.record(1, true, refused) }},
		"refused in a queue":  {queued: true, run: func(h *history) { h.record(1, true, refused) }},
		"refused while another one unlocks": {run: func(h *history) {
			h.record(1, true, granted)
			h.record(1, false, func() bool {
				h.record(2, true, refused)
				return true
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h, v := newHistory(test.queued), &verdict{TB: t}
			test.run(h)
			if h.check(v); v.failed != test.broken {
				t.Errorf("broken: %v", v.failed)
			}
		})
	}
}

func granted() bool { return true }
func refused() bool { return false }
