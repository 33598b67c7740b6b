package exportertest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock"
	"github.com/leasewheel/leasewheel/lock/locktest"
	"github.com/leasewheel/leasewheel/renewal"
	"github.com/leasewheel/leasewheel/wheel"
)

// Sources checks that a source is exported under each name that it was added by until that is
// removed, and a wheel once, under its first name, until it is removed as often as added. A name
// that was removed is free, even if a shared wheel still has it. wheels and watchdogs return
// the sorted names of those that are exported.
func Sources(t *testing.T, e Exporter, wheels, watchdogs func() []string) {
	t.Helper()
	newWheel := func() *wheel.Wheel {
		w, err := wheel.New(wheel.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { w.Stop() })
		return w
	}
	server := locktest.Start(t)
	shared := newWheel()
	a, b := server.Locker(t, lock.Config{Wheel: shared}), server.Locker(t, lock.Config{Wheel: shared})
	own := server.Locker(t, lock.Config{})
	dog, err := renewal.New(server.Store(t), renewal.Config{Wheel: shared})
	require.NoError(t, err)
	t.Cleanup(func() { _ = dog.Close(context.Background()) })

	assert.Empty(t, wheels())
	removeA := e.AddLocker("a", a)
	removeB := e.AddLocker("b", b)
	removeOwn := e.AddLocker("own", own)
	removeDog := e.AddWatchdog("dog", dog)
	removeWheel := e.AddWheel("shared", shared)
	assert.Equal(t, []string{"a", "own"}, wheels())
	assert.Equal(t, []string{"a", "b", "dog", "own"}, watchdogs())
	assert.Panics(t, func() { e.AddLocker("a", own) })
	assert.Panics(t, func() { e.AddLocker("dog", own) })
	assert.Panics(t, func() { e.AddWatchdog("a", dog) })
	assert.Panics(t, func() { e.AddWheel("a", newWheel()) })

	removeTwice, removeAgain := e.AddLocker("twice", a), e.AddWatchdog("again", dog)
	assert.Equal(t, []string{"a", "again", "b", "dog", "own", "twice"}, watchdogs())
	removeA()
	removeA() // once more changes nothing
	removeDog()
	assert.Equal(t, []string{"again", "b", "own", "twice"}, watchdogs())
	removeTwice()
	removeAgain()
	assert.Equal(t, []string{"b", "own"}, watchdogs())
	removeOwn()
	assert.Equal(t, []string{"a"}, wheels())
	assert.Equal(t, []string{"b"}, watchdogs())
	removeSuccessor := e.AddLocker("a", own) // with another wheel: the shared one has the name of b from here on
	assert.Equal(t, []string{"a", "b"}, wheels())
	assert.Panics(t, func() { e.AddWheel("b", newWheel()) })
	removeSuccessor()
	removeB()
	assert.Empty(t, watchdogs())
	assert.Equal(t, []string{"b"}, wheels())
	removeWheel()
	assert.Empty(t, wheels())
	e.AddWheel("first", shared)
	e.AddLocker("a", a)
	assert.Equal(t, []string{"first"}, wheels())
}
