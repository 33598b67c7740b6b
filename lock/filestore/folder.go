//go:build linux

package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// folder is an open folder.
type folder struct {
	fd     int
	ending context.Context // of its store
	pwrite func(fd int, b []byte, at int64) (int, error)
	turns  machine.Turns // of this store's requests for a file
}

// openFolder opens a folder, and creates it if need be. Another user could put symbolic links or
// pipes into one that is not this user's alone.
func openFolder(path string) (_ int, err error) {
	if err := makePath(path); err != nil {
		return 0, err
	}
	dir, err := unix.Open(filepath.Clean(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return 0, fmt.Errorf("is no folder, or a symbolic link: %w", err)
	} else if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			unix.Close(dir)
		}
	}()
	var stat unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstat(dir, &stat), unix.Fstatfs(dir, &system)); err != nil {
		return 0, err
	}
	if err := private(stat.Uid, stat.Mode); err != nil {
		return 0, err
	}
	if err := local(int64(system.Type)); err != nil { //nolint:unconvert // an int32 on some processors
		return 0, err
	}
	unix.Flock(dir, unix.LOCK_SH|unix.LOCK_NB) //nolint:errcheck // systemd-tmpfiles removes nothing old from a locked folder
	for _, path := range []string{pathOfLocks, pathOfClients, pathOfStores} {
		if err := makeFolder(dir, path); err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
	}
	return dir, nil
}

// makePath makes a folder unless it exists, and those that it is in.
func makePath(path string) error {
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(path)), modeOfFolders); err != nil {
		return err
	}
	switch err := os.Mkdir(path, modeOfFolders); {
	case errors.Is(err, os.ErrExist):
		return nil // what is no folder is refused later
	case err != nil:
		return err
	}
	return os.Chmod(path, modeOfFolders)
}

func private(uid, mode uint32) error {
	switch own := uint32(unix.Geteuid()); { //nolint:gosec // a user's id
	case uid != own:
		return fmt.Errorf("belongs to user %d, not to this user, %d: name another folder", uid, own)
	case mode&0o077 != 0:
		return fmt.Errorf("is open to other users (mode %o): change it to 700", mode&0o777)
	}
	return nil
}

// networked are the types of file systems, of statfs(2), that other machines may share. There
// flock(2) is emulated or local, and named pipes do not connect the machines.
var networked = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda", unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.V9FS_MAGIC: "9P", unix.OCFS2_SUPER_MAGIC: "OCFS2", unix.FUSE_SUPER_MAGIC: "FUSE, as of sshfs and GlusterFS",
	0x01161970: "GFS2", 0x0bd00bd0: "Lustre", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0xaad7aaea: "PanFS", 0x564c: "NCP",
	0x61636673: "ACFS", 0x013111a8: "IBRIX", 0xbeefdead: "StorNext",
	0x786f4256: "a folder of VirtualBox", 0xbacbacbc: "a folder of VMware", 0x7c7c6673: "a folder of Parallels",
}

func local(kind int64) error {
	if name := networked[kind&0xffffffff]; name != "" {
		return fmt.Errorf("is on a file system of a network (%s), where locks of files do not reach other machines reliably: name a local folder, or use a server", name)
	}
	return nil
}
