//go:build linux

package filestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/filestore"
	"github.com/leasewheel/leasewheel/lock/memstore"
)

// A pair is a request for a lock without contention and its release, by the store alone. A bare
// flock is what a program without this package does.
func BenchmarkPair(b *testing.B) {
	report := func(b *testing.B, pair func() error) {
		b.ReportAllocs()
		for b.Loop() {
			if err := pair(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	}
	pairs := func(b *testing.B, s driver.Store) {
		take := driver.Hold{Name: "orders:42", Owner: "a:1", Count: 1, TTL: driver.DefaultTTL}
		free := driver.Hold{Name: "orders:42", Owner: "a:1"}
		report(b, func() error {
			if _, err := s.Acquire(b.Context(), &take); err != nil {
				return err
			}
			_, err := s.Release(b.Context(), &free)
			return err
		})
	}
	folders := map[string]string{"the disk": b.TempDir()}
	if shm, err := os.MkdirTemp("/dev/shm", ""); err == nil { //nolint:usetesting // not where the disk is
		b.Cleanup(func() { _ = os.RemoveAll(shm) })
		folders["memory"] = shm
	}
	for where, folder := range folders {
		b.Run("files in "+where, func(b *testing.B) {
			s, err := filestore.New(filepath.Join(folder, "locks"))
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			pairs(b, s)
		})
		b.Run("a bare flock in "+where, func(b *testing.B) {
			path := filepath.Join(folder, "flock")
			report(b, func() error {
				f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
				if err != nil {
					return err
				}
				if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
					return fmt.Errorf("flock: %w", err)
				}
				return f.Close()
			})
		})
	}
	b.Run("memstore", func(b *testing.B) { pairs(b, memstore.New()) })
}
