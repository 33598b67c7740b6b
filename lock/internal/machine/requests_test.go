package machine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// A name that cannot be read is in the error, and does not hide those behind it, unless the context has ended.
func TestListGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	damaged := errors.New("damaged")
	states := map[string]*name{"a": newName(), "b": nil, "c": newName()}
	requests := machine.Requests{
		Step: func(ctx context.Context, of string, step func(*machine.State, time.Time) []machine.Message) error {
			n := states[of]
			if n == nil {
				return damaged
			}
			step(&n.State, n.now)
			return ctx.Err()
		},
		Client: func(string) (c driver.Client, announced bool) { return c, false },
		Names:  func(context.Context, string) ([]string, error) { return []string{"a", "b", "c"}, nil },
	}
	for _, of := range []string{"a", "c"} {
		h := hold(driver.KindMutex, "a:1")
		h.Name = of
		_, err := requests.Acquire(t.Context(), h)
		require.NoError(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	list := func() (names, failed []string) {
		for info, err := range requests.List(ctx, "", func(string) bool { return true }) {
			if err != nil {
				failed = append(failed, err.Error())
			} else {
				names = append(names, info.Name)
			}
		}
		return names, failed
	}
	names, failed := list()
	assert.Equal(t, []string{"a", "c"}, names)
	assert.Equal(t, []string{`lock "b": damaged`}, failed)
	cancel()
	names, failed = list()
	assert.Empty(t, names)
	assert.Equal(t, []string{`lock "a": context canceled`}, failed)
}
