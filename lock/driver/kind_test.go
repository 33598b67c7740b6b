package driver_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// A store of another's may report any number as a kind.
func TestUnknownKind(t *testing.T) {
	t.Parallel()
	for _, k := range []driver.Kind{driver.KindLatch + 1, 255} {
		assert.Equal(t, "unknown", k.String())
		assert.Equal(t, "unknown", k.Word())
	}
	assert.Equal(t, "latch", driver.KindLatch.Word())
}
