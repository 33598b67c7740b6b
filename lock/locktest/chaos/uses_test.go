package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// failing records whether a check has failed as what no stall of the machine excuses.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Errorf(format string, _ ...any) {
	f.failed = f.failed || strings.HasPrefix(format, "broken promise:")
}
func (f *failing) Log(...any) {}

func TestCheckOfUses(t *testing.T) {
	begin := time.Now()
	use := func(kind driver.Kind, granted, valid time.Duration, token int64) Use {
		return Use{Kind: kind, Name: "a", Called: begin.Add(granted - time.Millisecond), Granted: begin.Add(granted), Valid: begin.Add(valid), Token: token}
	}
	closer := use(driver.KindLatch, 0, 0, 0)
	closer.Count = 1 // and its release is not known
	wait := Use{Kind: driver.KindLatch, Name: "a", Called: begin.Add(500 * time.Millisecond), Granted: begin.Add(1100 * time.Millisecond)}
	counted := func(u Use, count int64) Use {
		u.Count, u.Released = count, u.Valid.Add(time.Millisecond)
		return u
	}
	const m, r, w = driver.KindMutex, driver.KindRead, driver.KindWrite
	for name, test := range map[string]struct {
		uses   []Use
		broken bool
	}{
		"one after the other":      {[]Use{use(m, 0, time.Second, 1), use(m, 2*time.Second, 3*time.Second, 2)}, false},
		"two at once":              {[]Use{use(m, 0, 2*time.Second, 1), use(m, time.Second, 3*time.Second, 2)}, true},
		"two at once, of two":      {[]Use{use(m, 0, 2*time.Second, 1), use(driver.KindFair, time.Second, 3*time.Second, 2)}, true},
		"a token that has shrunk":  {[]Use{use(m, 0, time.Second, 2), use(m, 2*time.Second, 3*time.Second, 1)}, true},
		"readers together":         {[]Use{use(r, 0, 2*time.Second, 1), use(r, time.Second, 3*time.Second, 1)}, false},
		"a writer beside a reader": {[]Use{use(r, 0, 2*time.Second, 1), use(w, time.Second, 3*time.Second, 2)}, true},
		"two of two permits":       {[]Use{counted(use(driver.KindPermit, 0, 2*time.Second, 1), 2), counted(use(driver.KindPermit, time.Second, 3*time.Second, 2), 2)}, false},
		"two of one permit":        {[]Use{counted(use(driver.KindPermit, 0, 2*time.Second, 1), 1), counted(use(driver.KindPermit, time.Second, 3*time.Second, 2), 1)}, true},
		"a wait for a latch":       {[]Use{counted(use(driver.KindLatch, 0, time.Second, 0), 1), wait}, false},
		"a latch that is closed":   {[]Use{counted(use(driver.KindLatch, 0, 2*time.Second, 0), 1), wait}, true},
		"a latch opened late":      {[]Use{closer, counted(use(driver.KindLatch, 0, 2*time.Second, 0), 1), wait}, false},
		"none":                     {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := &failing{TB: t}
			checked := Check(f, test.uses)
			require.Equal(t, test.broken, f.failed)
			require.Equal(t, len(test.uses) > 0, checked > 0)
		})
	}
}
