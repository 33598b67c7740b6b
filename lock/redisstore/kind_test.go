package redisstore

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Each kind of lock has its row.
func TestTablesHaveEveryKind(t *testing.T) {
	every := 0
	for k := driver.Kind(0); k.String() != "unknown"; k++ {
		every++
		if assert.Less(t, int(k), len(kinds), k.String()) {
			assert.NotNil(t, kinds[k], k.String())
		}
	}
	assert.Len(t, kinds, every)
	assert.GreaterOrEqual(t, every, 7)
}
