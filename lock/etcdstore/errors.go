package etcdstore

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasewheel/leasewheel/lock/driver"
)

var errClosed = fmt.Errorf("etcdstore: the store is closed: %w", driver.ErrNotDone)

// unsent is the error of a request that has changed nothing.
func unsent(err error) error { return fmt.Errorf("%w: %w", failed(err), driver.ErrNotDone) }

// failed is the error of a request that may have been applied.
func failed(err error) error {
	if transient(err) {
		return fmt.Errorf("etcdstore: %w: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("etcdstore: %w", err)
}

// transient reports whether a request may succeed later.
func transient(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.OutOfRange:
		return false
	}
	return !errors.Is(err, driver.ErrUnsupported) && !errors.Is(err, driver.ErrForeign)
}

// refused reports whether etcd has answered that it has not done a request. Without space it may
// have: the members apply a transaction that exceeds their quota, and then answer with that error.
func refused(err error) bool {
	switch code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.OutOfRange,
		codes.NotFound, codes.FailedPrecondition:
		return true
	}
	return elsewhere(err) || errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests)
}

// decided reports whether an error of a step shows that its request is not on its way any more.
func decided(err error) bool {
	return errors.Is(err, driver.ErrNotDone) || errors.Is(err, rpctypes.ErrNoSpace)
}

// elsewhere reports whether a member has refused a request as it knows no leader, or as a learner. Another
// one may accept it, and the client sends the next request to that.
func elsewhere(err error) bool {
	err = rpctypes.Error(err)
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner))
}

// code is that of an error of etcd's client, which wraps those of gRPC.
func code(err error) codes.Code {
	if coded, ok := errors.AsType[interface {
		error
		Code() codes.Code
	}](err); ok {
		return coded.Code()
	}
	return status.Code(err)
}
