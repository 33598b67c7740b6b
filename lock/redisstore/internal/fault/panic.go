package fault

import (
	"errors"
	"fmt"
)

// ErrPanicked is the error of a call of the client that has not returned, as after runtime.Goexit in
// a user's hook.
var ErrPanicked = errors.New("redisstore: the client panicked, or ended its goroutine")

// Protect calls the client where no caller would get its panic, as one of a user's hook: the panic
// is an error there.
func Protect(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value}
		}
	}()
	return call()
}

// panicError is the error of a panic. The value's text is a method of the user's, which may wait, as for
// a lock that is still held: it is made where the error is read.
type panicError struct{ value any }

func (e *panicError) Error() string {
	return fmt.Sprintf("redisstore: the client panicked: %v", e.value)
}
