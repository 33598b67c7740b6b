//go:build !unix

package pgtest

import "syscall"

// account is that of a server: the test's own.
type account struct{}

func own(string) (*account, error) { return nil, nil } // the account of the test

func (*account) attributes() *syscall.SysProcAttr { return nil }
