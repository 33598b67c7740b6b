package driver

import "errors"

// Package lock distinguishes these errors of a [Store]. They appear in package lock under
// the same names.
var (
	// ErrUnavailable is matched by errors that are transient: the store did not answer, or
	// cannot serve the request now. Package lock repeats the request. After any other error
	// it repeats only releases, in the background.
	ErrUnavailable = errors.New("lock: the store is unavailable")

	// ErrNotDone is matched by errors of a request that has changed nothing and will change
	// nothing. After an error that does not match it, the request may have been applied, or
	// may be applied later.
	ErrNotDone = errors.New("lock: the store has done nothing")

	// ErrUnsupported is matched by the errors of [Store.Supports], and of requests for locks
	// or operations that the store does not support.
	ErrUnsupported = errors.New("lock: the store does not keep locks of this kind")

	// ErrForeign is matched by errors of a name that is in use by something other than a
	// lock of the store's format, such as a lock of another library.
	ErrForeign = errors.New("lock: the name is held by another family of locks")
)
