package fault

import "fmt"

// Protect calls the client where no caller would get its panic, as one of a user's hook: the panic
// is an error there.
func Protect(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("redisstore: the client panicked: %v", value)
		}
	}()
	return call()
}
