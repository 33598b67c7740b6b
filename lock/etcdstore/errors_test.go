package etcdstore

import (
	"context"
	"testing"

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
