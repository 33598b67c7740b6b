package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/pgstore"
	"github.com/leasewheel/leasewheel/lock/pgstore/pgtest"
)

// A transaction of one update, without and with a guard.
func BenchmarkGuard(b *testing.B) {
	s := pgtest.Start(b)
	prepare(b, s)
	p := pool(b, s)
	_, err := p.Exec(b.Context(), "INSERT INTO leases VALUES ('guarded', 'client:1', now())")
	require.NoError(b, err)
	for name, guarded := range map[string]bool{"guarded=no": false, "guarded=yes": true} {
		b.Run(name, func(b *testing.B) {
			cpu := s.CPU()
			for b.Loop() {
				tx, err := p.Begin(b.Context())
				require.NoError(b, err)
				if guarded {
					require.NoError(b, pgstore.GuardToken(b.Context(), tx, schema, "guarded", 1))
				}
				_, err = tx.Exec(b.Context(), "UPDATE leases SET ends = now() WHERE name = 'guarded'")
				require.NoError(b, err)
				require.NoError(b, tx.Commit(b.Context()))
			}
			b.ReportMetric(float64((s.CPU()-cpu).Nanoseconds())/float64(b.N), "server-cpu-ns/op")
		})
	}
}
