package redisstore

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Each kind of lock has its entry in the tables of kinds.
func TestTablesHaveEveryKind(t *testing.T) {
	every := 0
	for k := driver.Kind(0); k.String() != "unknown"; k++ {
		every++
		assert.Contains(t, kinds, k, k.String())
		if k != driver.KindMutex {
			assert.Contains(t, modes, k, k.String())
			assert.Equal(t, k, kindOfMode(modes[k]), k.String())
		}
	}
	assert.Len(t, kinds, every)
	assert.GreaterOrEqual(t, every, 7)
}
