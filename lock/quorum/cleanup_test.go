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
	s.open, s.shut = context.WithCancel(t.Context())
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
		s.open, s.shut = context.WithCancel(t.Context())
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
		s.open, s.shut = context.WithCancel(t.Context())
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
