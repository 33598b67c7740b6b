package redisstore

import "github.com/leasewheel/leasewheel/lock/redisstore/internal/fault"

// The faults that a server reports. Each is the Fault of a [ServerError], which matches
// it in errors.Is. Those marked "may pass" also match [driver.ErrUnavailable], and are
// retried for a while.
var (
	// ErrReadOnly is READONLY; may pass: a failover may be under way.
	ErrReadOnly = fault.ErrReadOnly
	// ErrLoading is LOADING; may pass.
	ErrLoading = fault.ErrLoading
	// ErrBusy is BUSY; may pass.
	ErrBusy = fault.ErrBusy
	// ErrNoReplicas is NOREPLICAS; may pass.
	ErrNoReplicas = fault.ErrNoReplicas
	// ErrCluster is CLUSTERDOWN, MASTERDOWN, TRYAGAIN, MOVED, ASK, or a script with keys on two nodes; may pass.
	ErrCluster = fault.ErrCluster
	// ErrMaxClients is the refusal of a connection of a client of [Dial] or [Open]; may pass.
	ErrMaxClients = fault.ErrMaxClients
	// ErrOutOfMemory is OOM.
	ErrOutOfMemory = fault.ErrOutOfMemory
	// ErrMisconfigured is MISCONF.
	ErrMisconfigured = fault.ErrMisconfigured
	// ErrAuth is NOAUTH or WRONGPASS.
	ErrAuth = fault.ErrAuth
	// ErrCredentials is an error of [ClientConfig.Credentials]; may pass.
	ErrCredentials = fault.ErrCredentials
	// ErrNoPermission is NOPERM, also from within a script.
	ErrNoPermission = fault.ErrNoPermission
	// ErrWrongType is WRONGTYPE.
	ErrWrongType = fault.ErrWrongType
	// ErrTooOld is the refusal of a command, or of one of its options, that the scripts
	// use and an old server lacks.
	ErrTooOld = fault.ErrTooOld
	// ErrCrossSlot is CROSSSLOT.
	ErrCrossSlot = fault.ErrCrossSlot
	// ErrDamaged is for a fencing counter that is no whole number from 0 to 2^53. Until
	// it is repaired no lock of that name is granted, since tokens would not grow.
	ErrDamaged = fault.ErrDamaged
	// ErrUnreplicated is the fault of a grant that too few replicas have acknowledged in
	// time, see [Config]; may pass.
	ErrUnreplicated = fault.ErrUnreplicated
)

// ServerError is a server's refusal, or a missing answer. Its Fault is the class of the
// refusal, one of this package's errors, or nil; its Err is what go-redis reported. It matches
// both in errors.Is, and the errors of package driver by which package lock decides on retries.
type ServerError = fault.Error
