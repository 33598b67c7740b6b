package pgstore

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
	"github.com/leasewheel/leasewheel/renewal"
)

// Renew prolongs leases, see [renewal.Renewer]. Mutexes and fair locks take one statement, the
// others two, however many they are.
func (s *Store) Renew(ctx context.Context, items []renewal.Item) {
	w, err := s.window(ctx)
	if err != nil {
		fail(pointers(items), err)
		return
	}
	all := pointers(items)
	slices.SortFunc(all, func(a, b *renewal.Item) int { return strings.Compare(a.Key, b.Key) })
	var columns, others []*renewal.Item
	for _, item := range all {
		if kind, _, _ := driver.ParseRef(item.Ref); exclusive(kind) {
			columns = append(columns, item)
		} else {
			others = append(others, item)
		}
	}
	if len(columns) > 0 {
		others = append(others, s.renewEach(ctx, w, columns)...)
	}
	if len(others) > 0 {
		s.renewStates(ctx, w, others)
	}
}

func pointers(items []renewal.Item) []*renewal.Item {
	all := make([]*renewal.Item, len(items))
	for i := range items {
		all[i] = &items[i]
	}
	return all
}

func fail(items []*renewal.Item, err error) {
	for _, item := range items {
		item.Outcome, item.Given, item.Err = renewal.Unknown, 0, err
	}
}

// renewEach prolongs mutexes and fair locks, and returns those that the machine decides on. A name that the
// database's encoding lacks, as a quorum may have of its other nodes, costs no other one its renewal.
func (s *Store) renewEach(ctx context.Context, w *window, items []*renewal.Item) (left []*renewal.Item) {
	left, err := s.renewColumns(ctx, w, items)
	if half := len(items) / 2; half > 0 && untranslatable(err) {
		return append(s.renewEach(ctx, w, items[:half]), s.renewEach(ctx, w, items[half:])...)
	}
	if err != nil {
		fail(items, err)
	}
	return left
}

// renewColumns prolongs mutexes and fair locks. It returns those that the machine decides on.
func (s *Store) renewColumns(ctx context.Context, w *window, items []*renewal.Item) (left []*renewal.Item, err error) {
	names, owners, ttls := make([]string, len(items)), make([]string, len(items)), make([]int64, len(items))
	for i, item := range items {
		names[i], owners[i], ttls[i] = item.Key, item.Owner, item.TTL.Milliseconds()
	}
	var clock int64
	var outcomes []int
	sent := time.Now()
	err = s.query(ctx, s.sql.renew, []any{names, owners, ttls, w.ranged()}, func(rows pgx.Rows) error { return rows.Scan(&clock, &outcomes) })
	switch {
	case err != nil:
		return nil, err
	case len(outcomes) != len(items):
		return nil, errLost
	}
	s.clock.renew(sent, clock, !w.has(clock))
	for i, item := range items {
		switch item.Outcome = renewal.Unknown; outcomes[i] {
		case 1:
			item.Outcome = renewal.Renewed
		case 2:
			item.Outcome = renewal.Taken
		case 3:
			item.Outcome = renewal.Gone
		case decide:
			left = append(left, item)
		default: // the owner has it, but the request was late
			item.Err = errLate
		}
	}
	return left, nil
}

// renewStates prolongs leases by the machine. Those of one name are one step.
func (s *Store) renewStates(ctx context.Context, w *window, items []*renewal.Item) {
	of := make(map[string][]*renewal.Item)
	var steps []*step
	for _, item := range items {
		name := item.Key
		if of[name] == nil {
			steps = append(steps, &step{name: name, do: func(state *machine.State, now time.Time) []machine.Message {
				for _, item := range of[name] {
					state.RenewItem(now, item)
				}
				return nil
			}})
		}
		of[name] = append(of[name], item)
	}
	all := slices.Clone(steps)
	if err := s.steps(ctx, w, steps...); err != nil {
		for _, st := range all {
			if !st.saved {
				fail(of[st.name], err)
			}
		}
	}
}
