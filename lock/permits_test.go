package lock

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// A permit that is held while a locker acquires four billion more, as a busy one does within days,
// shares its id with none of them.
func TestPermitsHaveIDsOfTheirOwn(t *testing.T) {
	l, err := New(noStore{}, Config{})
	require.NoError(t, err)
	defer l.Close()
	seen := make(map[string]bool)
	for _, latest := range []uint64{0, math.MaxUint32 - 1000, 2*math.MaxUint32 - 1000} {
		l.permits.Store(latest)
		for i := range int64(1000) {
			n := i%5 + 1
			h := &driver.Hold{Kind: driver.KindPermit, Owner: l.newPermitOwner(n)}
			h.Semaphore.Permits = n
			require.Equal(t, l.ClientID(), driver.ClientOf(h.Owner))
			for _, id := range machine.OwnersOf(h) {
				require.False(t, seen[id], "%s of a lease of %d", id, n)
				seen[id] = true
			}
		}
	}
}
