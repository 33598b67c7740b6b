//go:build !linux

package filestore

import (
	"fmt"
	"os"
	"runtime"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Store keeps locks in a folder, on Linux.
type Store struct{ driver.Store }

// Presence returns an error.
func (*Store) Presence() (*os.File, error) { return nil, driver.ErrUnsupported }

// New returns an error: only Linux has all that the store needs.
func New(string) (*Store, error) {
	return nil, fmt.Errorf("filestore: %s lacks named pipes that report the end of a process, or a clock that counts suspend: use a server: %w", runtime.GOOS, driver.ErrUnsupported)
}
