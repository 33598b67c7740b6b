package page

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAxis(t *testing.T) {
	a := Axis{Low: 1, High: 3, From: 100, To: 300}
	assert.InDelta(t, 200, a.At(2), 1e-12)
	assert.InDelta(t, 300, a.At(9), 1e-12, "what is beyond the axis stands at its end")
	assert.InDelta(t, 2, a.Value(200), 1e-12)
	assert.InDelta(t, 3, CeilTick(3), 1e-12)
	assert.InDelta(t, 3+math.Log10(2), CeilTick(3.1), 1e-12)
	assert.InDelta(t, 3+math.Log10(5), CeilTick(3.5), 1e-12)
	assert.InDelta(t, 4, CeilTick(3.8), 1e-12)
}
