package exporter

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
)

func TestSourcesAreExportedOnce(t *testing.T) {
	var s Sources[int]
	s.Add("x", "wheel", "a", 1)
	s.Add("x", "wheel", "again", 1)
	s.Add("x", "wheel", "b", 2)
	assert.Equal(t, Sources[int]{{"a", 1, 2}, {"b", 2, 1}}, s)
	assert.PanicsWithValue(t, "x: another wheel called b was added before", func() { s.Add("x", "wheel", "b", 3) })
	s.Remove(1)
	assert.True(t, s.Has("a"))
	assert.False(t, s.Has("again"))
	s.Remove(1)
	assert.False(t, s.Has("a"))
	assert.True(t, s.Has("b"))
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
