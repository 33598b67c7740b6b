//go:build real

package quorum

import (
	"testing"
	"time"
)

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
				s.awaitFree(t, "a")
				ill.strikeTwo(s)
				if s := try.repeat(t.Context(), "a", 2); s.failed > 0 {
					t.Errorf("%d failed", s.failed)
				}
			})
		}
	}
}

// awaitFree waits until no server has the lock, or will have it: a request that was still on its way
// when the others had granted the lock may arrive after its release, until it is late.
func (s *servers) awaitFree(t *testing.T, name string) {
	t.Helper()
	time.Sleep(expiry / 20)
	for _, client := range s.clients(t, false) {
		for {
			n, err := client.Exists(t.Context(), name).Result()
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
}
