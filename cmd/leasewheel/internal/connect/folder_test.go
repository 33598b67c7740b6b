package connect

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/leasewheel/leasewheel/cmd/leasewheel/internal/exit"
	"github.com/leasewheel/leasewheel/lock/driver"
)

// A script that gives up after 64 would not try again once the disk has room, or is writable.
func TestFolderOnAFullDiskIsNoMistakeInTheArguments(t *testing.T) {
	t.Parallel()
	for cause, unavailable := range map[error]bool{
		syscall.ENOSPC: true, syscall.EFBIG: true, syscall.EMFILE: true, syscall.EIO: true, syscall.EROFS: true, driver.ErrUnavailable: true,
		syscall.ENOENT: false, syscall.ENOTDIR: false, syscall.EACCES: false,
	} {
		err := unusable(fmt.Errorf("filestore: the folder /srv/locks: %w", cause))
		assert.ErrorIs(t, err, cause)
		code, has := errors.AsType[*exit.Error](err)
		assert.Equal(t, unavailable, has, cause)
		assert.True(t, !has || code.Code == exit.Unavailable, cause)
	}
}

// The locks of a service in a /tmp of its own would exclude no process of cron or of a login.
func TestTmpOfOneServiceIsRefused(t *testing.T) {
	t.Parallel()
	const (
		system  = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
		own     = "310 22 8:1 /tmp/systemd-private-4f9c-web.service-k2/tmp /tmp rw,relatime shared:99 - ext4 /dev/sda1 rw\n"
		memory  = "311 22 0:35 /systemd-private-4f9c-web.service-k2/tmp /tmp rw,nosuid shared:99 - tmpfs tmpfs rw\n"
		ownVar  = "312 22 8:1 /var/tmp/systemd-private-4f9c-web.service-k2/tmp /var/tmp rw,relatime shared:98 - ext4 /dev/sda1 rw\n"
		mounted = "313 22 0:36 / /tmp rw,nosuid shared:12 - tmpfs tmpfs rw\n"
	)
	for mounts, private := range map[string]bool{
		system + own: true, system + memory + ownVar: true, system + mounted + memory: true,
		"": false, system: false, system + ownVar: false, system + mounted: false, system + own + mounted: false, "310 22 8:1\n": false,
	} {
		assert.Equal(t, private, privateTmp(mounts), mounts)
	}
}
