package exporter

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/wheel"
)

func TestWheelsAreExportedOnce(t *testing.T) {
	s := New("x")
	a, b := new(wheel.Wheel), new(wheel.Wheel)
	remove := s.AddWheel("a", a)
	again := s.AddWheel("again", a)
	s.AddWheel("b", b)
	assert.Equal(t, map[*wheel.Wheel]*exported{a: {"a", []string{"a", "again"}}, b: {"b", []string{"b"}}}, s.wheels)
	assert.PanicsWithValue(t, "x: another one called b was added before", func() { s.AddWheel("b", new(wheel.Wheel)) })
	remove()
	remove()
	assert.Equal(t, map[*wheel.Wheel]*exported{a: {"a", []string{"again"}}, b: {"b", []string{"b"}}}, s.wheels)
	again()
	assert.Equal(t, map[*wheel.Wheel]*exported{b: {"b", []string{"b"}}}, s.wheels)
}

// What is nil is refused as it is added: the next scrape would end the process.
func TestNilIsNotAdded(t *testing.T) {
	s := New("x")
	assert.PanicsWithValue(t, "x: the wheel called a is nil", func() { s.AddWheel("a", nil) })
	assert.PanicsWithValue(t, "x: the watchdog called a is nil", func() { s.AddWatchdog("a", nil) })
	assert.Panics(t, func() { s.AddLocker("a", nil, nil) })
	assert.NotPanics(t, func() { s.Read() })
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
