package exporter

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
)

func TestSourcesAreExportedOnce(t *testing.T) {
	var s sources[int]
	s.add("x", "a", 1)
	s.add("x", "again", 1)
	s.add("x", "b", 2)
	assert.Equal(t, sources[int]{{"a", 1, 2}, {"b", 2, 1}}, s)
	assert.PanicsWithValue(t, "x: another one called b was added before", func() { s.add("x", "b", 3) })
	s.remove(1)
	assert.True(t, s.has("a"))
	assert.False(t, s.has("again"))
	s.remove(1)
	assert.False(t, s.has("a"))
	assert.True(t, s.has("b"))
}

func TestLabelsAreBounded(t *testing.T) {
	l := NewLabels(func(_ driver.Kind, name string) string { return name }, 2)
	for _, label := range []string{"a", "", "b", "c", "a"} {
		want := label
		if label == "c" {
			want = "other"
		}
		assert.Equal(t, want, l.Of(driver.KindMutex, label))
	}
	assert.Equal(t, "caf\ufffd", NewLabels(func(_ driver.Kind, name string) string { return name[:4] }, 2).Of(driver.KindMutex, "café"),
		"no exporter takes half a character")
	assert.Equal(t, DefaultMaxLabels, NewLabels(nil, 0).most)
}
