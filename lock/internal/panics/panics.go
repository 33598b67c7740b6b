// Package panics turns the panics of users' functions into errors.
package panics

import "fmt"

// Protect calls what may call functions of a user where no caller would get their panic: it is an
// error there. of names what panicked.
func Protect(of string, call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &failure{of, value}
		}
	}()
	return call()
}

// failure is the error of a panic. The value's text is a method of the user's, which may wait, as for
// a lock that is still held: it is made where the error is read.
type failure struct {
	of    string
	value any
}

func (f *failure) Error() string { return fmt.Sprintf("%s panicked: %v", f.of, f.value) }
