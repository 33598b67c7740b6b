package lock

import (
	"fmt"
	"runtime/debug"

	"github.com/leasewheel/leasewheel/lock/internal/logging"
)

// PanicError is the error of a panic or of runtime.Goexit.
type PanicError struct {
	Value any    // nil after runtime.Goexit
	Stack []byte // nil after runtime.Goexit
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return "the function called runtime.Goexit"
	}
	return fmt.Sprintf("the function panicked: %v", e.Value)
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// newPanic returns the error for a recovered panic, and logs it. Without one, the goroutine ends
// by runtime.Goexit.
func (l *Locker) newPanic(where, name string, value any) *PanicError {
	if value == nil {
		return &PanicError{}
	}
	stack := debug.Stack()
	l.log.Error("lock: panic in "+where, "panic", logging.Printed{Value: value}, "name", name, "stack", string(stack))
	return &PanicError{Value: value, Stack: stack}
}

// protect calls the store, or a function of the user, where no caller would get its panic: it
// is logged, and is an error there.
func (l *Locker) protect(where, name string, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = l.newPanic(where, name, p)
		}
	}()
	return call()
}
