package observe_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/observe"
)

type traceKey struct{}

// Joined observers are called in their order, and all of them if one panics.
func TestJoin(t *testing.T) {
	var called []string
	note := func(name string) *observe.Observer {
		return &observe.Observer{
			Acquired: func(ctx context.Context, a observe.Acquired) {
				called = append(called, name+" "+a.Name+" "+ctx.Value(traceKey{}).(string))
			},
			Ended: func(_ context.Context, e observe.Ended) {
				called = append(called, name+" ended "+e.Name)
				panic(name)
			},
		}
	}
	ctx := context.WithValue(t.Context(), traceKey{}, "trace")
	o := observe.Join(note("one"), nil, &observe.Observer{}, note("two"))
	o.Acquired(ctx, observe.Acquired{Name: "a"})
	require.Panics(t, func() { o.Ended(ctx, observe.Ended{Name: "a"}) })
	require.Equal(t, []string{"one a trace", "two a trace", "one ended a", "two ended a"}, called)
	require.Equal(t, &observe.Observer{}, observe.Join(nil, &observe.Observer{}))
}
