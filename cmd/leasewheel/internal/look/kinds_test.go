package look

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
)

// Each kind of lock has its word in the output, and in the schema.
func TestKindNamesAreComplete(t *testing.T) {
	schema, err := os.ReadFile("../../../../docs/lock.schema.json")
	require.NoError(t, err)
	for k := driver.Kind(0); k.String() != "unknown"; k++ {
		require.NotEmpty(t, k.Word(), k.String())
		assert.Contains(t, string(schema), `"`+k.Word()+`"`)
	}
}
