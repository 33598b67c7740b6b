package etcdstore

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/renewal"
)

// reference is what the store is compared with.
type reference struct {
	state machine.State
	token int64 // of the store, at the reference's last token
	last  int64
}

// TestMachine plays random operations on three stores and on the machine, and compares replies,
// tokens and descriptions.
func TestMachine(t *testing.T) {
	t.Parallel()
	first := open(t)
	stores := []*Store{first, beside(t, first), beside(t, first)}
	for _, s := range stores {
		s.waitTTL = time.Hour
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	kinds := []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite}
	for name := range 12 {
		var r reference
		some := kinds[:2] // of those that share a name, mostly
		switch random.IntN(4) {
		case 0, 1:
			some = kinds[2:]
		case 2:
			some = kinds
		}
		for step := range 60 {
			h := &driver.Hold{
				Kind: some[random.IntN(len(some))], Name: fmt.Sprintf("n%d", name),
				Owner: fmt.Sprintf("%08x-0000-4000-8000-000000000000:%d", random.IntN(3), random.IntN(2)), Count: 1, TTL: time.Hour,
			}
			if h.Kind == driver.KindFair && random.IntN(2) == 0 {
				h.Queue.Keep = time.Hour
			}
			if h.Kind == driver.KindWrite && random.IntN(4) == 0 {
				h.ReadWrite.BlockReaders = time.Hour
			}
			if random.IntN(4) == 0 {
				h.Count = 2
			}
			s := stores[random.IntN(len(stores))]
			what := fmt.Sprintf("step %d: %+v", step, h)
			switch random.IntN(6) {
			case 0, 1, 2:
				r.acquire(t, s, h, what)
			case 3, 4:
				h.Count -= int64(random.IntN(2))
				r.release(t, s, h, what)
			default:
				r.renew(t, s, h, what)
			}
			r.inspect(t, stores[random.IntN(len(stores))], h.Name, what)
		}
	}
}

func (r *reference) acquire(t *testing.T, s *Store, h *driver.Hold, what string) {
	want, _ := r.state.Acquire(time.Now(), h)
	got := asks(t, s, h)
	require.Equal(t, want.Verdict, got.Verdict, what)
	require.Equal(t, want.Behind, got.Behind, what)
	require.Equal(t, want.Foreign, got.Foreign, what)
	require.Equal(t, want.Wait > 0, got.Wait > 0, what)
	if want.Verdict != driver.Granted {
		return
	}
	if r.state.Token() == r.last {
		require.Equal(t, r.token, got.Token, what)
	} else {
		require.Greater(t, got.Token, r.token, what)
	}
	r.last, r.token = r.state.Token(), got.Token
}

func (r *reference) release(t *testing.T, s *Store, h *driver.Hold, what string) {
	want, _ := r.state.Release(time.Now(), h)
	if want {
		released(t, s, h)
	} else {
		require.False(t, release(t, s, h), what)
	}
}

func (r *reference) renew(t *testing.T, s *Store, h *driver.Hold, what string) {
	outcomes := map[driver.Verdict]renewal.Outcome{driver.Granted: renewal.Renewed, driver.Refused: renewal.Taken, driver.NotHeld: renewal.Gone}
	want := r.state.Renew(time.Now(), h)
	items := []renewal.Item{{Key: h.Name, Owner: h.Owner, Ref: h.Kind, TTL: h.TTL}}
	s.Renew(t.Context(), items)
	require.Equal(t, outcomes[want.Verdict], items[0].Outcome, "%s: %v", what, items[0].Err)
}

func (r *reference) inspect(t *testing.T, s *Store, name, what string) {
	want := r.state.Inspect(time.Now(), driver.KindMutex)
	got := answered(t, func() (driver.Info, error) { return s.Inspect(t.Context(), name, driver.KindMutex) })
	require.Equal(t, r.token, got.Token, what)
	require.Equal(t, want.Kind, got.Kind, what)
	require.Equal(t, want.HolderCount, got.HolderCount, what)
	require.Equal(t, want.WaiterCount, got.WaiterCount, what)
	for i, h := range want.Holders {
		require.Equal(t, []any{h.Owner, h.Write, h.Holds}, []any{got.Holders[i].Owner, got.Holders[i].Write, got.Holders[i].Holds}, what)
	}
	for i, w := range want.Waiters {
		require.Equal(t, w.Owner, got.Waiters[i].Owner, what)
	}
}
