//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is that of a server.
type account struct{ uid, gid uint32 }

// own gives a folder to another account if the test is root's, as which PostgreSQL refuses to run.
func own(dir string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil // the account of the test
	}
	of, err := user.Lookup("postgres")
	if err != nil {
		if of, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("pgtest: no account to run as: %w", err)
		}
	}
	uid, _ := strconv.ParseUint(of.Uid, 10, 32)
	gid, _ := strconv.ParseUint(of.Gid, 10, 32)
	return &account{uint32(uid), uint32(gid)}, os.Chown(dir, int(uid), int(gid))
}

// attributes are those of a process of the account.
func (a *account) attributes() *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Setpgid: true}
	if a != nil {
		attributes.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attributes
}
