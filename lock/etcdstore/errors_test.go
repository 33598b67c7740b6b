package etcdstore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// An error of etcd is taken for a refusal only if the request was certainly not applied.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrTooManyRequests, rpctypes.ErrGRPCNoLeader,
		rpctypes.ErrGRPCPermissionDenied, rpctypes.ErrGRPCLeaseNotFound, rpctypes.ErrGRPCRequestTooLarge,
	} {
		assert.True(t, refused(err), "%v", err)
	}
	for _, err := range []error{
		nil, rpctypes.ErrGRPCNoSpace, rpctypes.ErrNoSpace, rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCLeaderChanged,
		rpctypes.ErrGRPCStopped, rpctypes.ErrGRPCTimeoutDueToLeaderFail, context.DeadlineExceeded, context.Canceled,
	} {
		assert.False(t, refused(err), "%v", err)
	}
}

// A request that members refuse until its time is over fails with their reason, but as one that may have been
// applied: the last one had no answer.
func TestErrorOfARequestThatEveryMemberRefuses(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{rpctypes.ErrGRPCNoLeader, rpctypes.ErrNoLeader, rpctypes.ErrGRPCNotSupportedForLearner} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := somewhere(ctx, func(context.Context) (int, error) {
				time.Sleep(time.Millisecond)
				if ctx.Err() != nil {
					return 0, ctx.Err()
				}
				return 0, refusal
			})
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorContains(t, err, rpctypes.ErrorDesc(refusal))
			assert.False(t, refused(err), "%v", err)
			assert.True(t, transient(err), "%v", err)
		})
	}
}
