//go:build real

package quorum

import "testing"

// The patient are granted the lock while two of five servers are ill. A
// release waits for the ill as long as the limit for a node allows, which is
// short for the benchmark: a healthy node that the machine holds up exceeds it.
func TestThePatientAreGrantedTheLock(t *testing.T) {
	for _, c := range contestants {
		if !c.patient {
			continue
		}
		for _, ill := range illnesses {
			t.Run(c.name+"/"+ill.name, func(t *testing.T) {
				s := start(t, 5)
				try := c.open(t, s.clients(t, true), expiry)
				try.repeat(t.Context(), "a", 10)
				ill.strikeTwo(s)
				if s := try.repeat(t.Context(), "a", 2); s.failed > 0 {
					t.Errorf("%d failed", s.failed)
				}
			})
		}
	}
}
