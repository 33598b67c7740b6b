package pgstore

import (
	"context"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Check examines the server, see [driver.Checker].
func (s *Store) Check(ctx context.Context, o driver.CheckOptions) (driver.Report, error) {
	return driver.Report{}, s.Ping(ctx)
}
