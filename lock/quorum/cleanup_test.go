package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/backoff"
)

// released is a node that confirms every release.
type released struct{ driver.Store }

func (released) Group(string, any) string { return "" }

func (released) Release(context.Context, *driver.Hold) (bool, error) { return true, nil }

// Close sends the last release of each leftover. One that comes as run ends is either found
// by run or starts it again: there is no instant between the two.
func TestLeftoverThatComesAsCleanupEnds(t *testing.T) {
	s := &Store{config: Config{NodeTimeout: DefaultNodeTimeout}}
	s.open, s.shut = context.WithCancel(context.Background()) // that of the test ends before Close
	n := &node{Store: released{}}
	c := &n.cleanup
	c.init(s, n)
	require.NoError(t, s.Close())
	backlogOf := func(left leftover) *backlog {
		b := &backlog{cleanup: c, changed: make(chan struct{}, 1), leftovers: map[holdKey]*leftover{keyOf(&left.hold): &left}}
		c.groups[""] = b
		return b
	}
	b := backlogOf(leftover{})
	o, _ := b.next(time.Time{})
	require.NotNil(t, o)
	o, _ = b.next(time.Time{})
	require.Nil(t, o)
	c.put(leftover{})
	s.work.Wait()
	require.Empty(t, c.groups)

	b = backlogOf(leftover{})
	b.releaseLast(time.Now())
	c.put(leftover{hold: driver.Hold{Name: "another"}})
	s.work.Wait()
	require.Len(t, b.leftovers, 2, "they are left to their TTL")
}

// grouped is a node whose locks have a group each.
type grouped struct{ released }

func (grouped) Group(name string, _ any) string { return name }

// Nothing is left of a group once its leftovers are released: a node may have other groups all
// the time, as a cluster in which addresses change.
func TestNothingIsLeftOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{config: Config{NodeTimeout: DefaultNodeTimeout}}
		s.open, s.shut = context.WithCancel(context.Background()) // that of the test ends before Close
		n := &node{Store: grouped{}}
		n.cleanup.init(s, n)
		for i := range 1000 {
			h := driver.Hold{Name: fmt.Sprint(i), TTL: time.Minute}
			n.cleanup.put(leftover{hold: h, due: time.Now().Add(backoff.After(0))})
			n.cleanup.put(leftover{hold: h, final: time.Now().Add(time.Second), due: time.Now().Add(time.Second)})
		}
		s.work.Wait()
		require.Empty(t, n.cleanup.groups)
	})
}

// refusing is a node that refuses releases for good, as that of a user without rights does.
type refusing struct {
	released
	asked *atomic.Int64
}

func (r refusing) Release(context.Context, *driver.Hold) (bool, error) {
	r.asked.Add(1)
	return false, errors.New("no permission")
}

// Releases that a node refuses for good end with the TTL of their holds: until then they take the room
// of others, and their time. Meanwhile few are sent.
func TestRefusedLeftoversEndWithTheirTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Store{config: Config{NodeTimeout: DefaultNodeTimeout}}
		s.open, s.shut = context.WithCancel(context.Background()) // that of the test ends before Close
		var asked atomic.Int64
		n := &node{Store: refusing{asked: &asked}}
		n.cleanup.init(s, n)
		defer s.Close()
		const leftovers, ttl = 100, 5 * time.Second
		for i := range leftovers {
			n.cleanup.end(leftover{hold: driver.Hold{Name: fmt.Sprint(i), TTL: ttl}, ends: time.Now().Add(ttl + grace)})
		}
		time.Sleep(ttl)
		synctest.Wait()
		early := asked.Load()
		time.Sleep(2 * grace)
		synctest.Wait()
		before := asked.Load()
		require.Greater(t, before, early, "the node may give in")
		require.LessOrEqual(t, before, int64(15*leftovers))
		time.Sleep(10 * time.Second)
		require.Equal(t, before, asked.Load(), "they are sent still")
	})
}

// counting is a node that counts releases, and confirms them unless it has an error.
type counting struct {
	released
	asked *atomic.Int64
	err   error
}

func (c counting) Release(context.Context, *driver.Hold) (bool, error) {
	c.asked.Add(1)
	return c.err == nil, c.err
}

// cleaning returns the cleanup of a node that counts releases, of a store that ends with t.
func cleaning(t *testing.T, err error) (*cleanup, *atomic.Int64) {
	s := &Store{config: Config{NodeTimeout: DefaultNodeTimeout}}
	s.open, s.shut = context.WithCancel(context.Background()) // that of the test ends before Close
	asked := new(atomic.Int64)
	n := &node{Store: counting{asked: asked, err: err}}
	n.cleanup.init(s, n)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &n.cleanup, asked
}

// A node that is out of reach is asked at a steady pace, however many releases it has left.
func TestPausesOfANodeThatIsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, asked := cleaning(t, driver.ErrUnavailable)
		const leftovers = 100
		for i := range leftovers {
			c.end(leftover{hold: driver.Hold{Name: fmt.Sprint(i), TTL: time.Hour}})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := asked.Load()
		require.GreaterOrEqual(t, before, int64(leftovers))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		more := asked.Load() - before
		require.Greater(t, more, int64(10))
		require.Less(t, more, int64(leftovers/2))
	})
}

// A leftover is released when it is due, also if another one, which is due later, came first.
func TestLeftoverThatIsDueFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, asked := cleaning(t, nil)
		for i, due := range []time.Duration{time.Hour, time.Second} {
			c.put(leftover{hold: driver.Hold{Name: fmt.Sprint(i), TTL: time.Hour}, due: time.Now().Add(due)})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 1, asked.Load())
	})
}

// A node has a bounded number of leftovers. One that it has already takes no further place, and ends
// with its latest request.
func TestLeftoversAreBounded(t *testing.T) {
	c, _ := cleaning(t, nil)
	b := &backlog{cleanup: c, changed: make(chan struct{}, 1), leftovers: make(map[holdKey]*leftover)}
	c.groups[""] = b
	for i := range mostLeftovers + 1 {
		c.put(leftover{hold: driver.Hold{Name: fmt.Sprint(i)}})
	}
	require.Len(t, b.leftovers, mostLeftovers)
	known := leftover{hold: driver.Hold{Name: "0"}, final: time.Now()}
	c.put(known)
	c.put(leftover{hold: known.hold}) // of an earlier request
	require.Len(t, b.leftovers, mostLeftovers)
	require.Equal(t, known.final, b.leftovers[keyOf(&known.hold)].final)
}

// Nothing is left of a subscription that has ended, and those to the same name stay.
func TestNothingIsLeftOfASubscription(t *testing.T) {
	s := &Store{listeners: listeners{subs: make(map[string]map[*subscription]struct{})}}
	subscribed := func() *subscription {
		open, end := context.WithCancel(t.Context())
		return &subscription{store: s, name: "a", open: open, end: end}
	}
	first, second := subscribed(), subscribed()
	s.listeners.add(first)
	s.listeners.add(second)
	first.Close()
	visited := 0
	s.listeners.each("a", func(*subscription) { visited++ })
	require.Equal(t, 1, visited)
	second.Close()
	require.Empty(t, s.listeners.subs)
}
