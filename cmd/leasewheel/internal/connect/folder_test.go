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

// A script that gives up after 64 would not try again once the disk has room.
func TestFolderOnAFullDiskIsNoMistakeInTheArguments(t *testing.T) {
	t.Parallel()
	for cause, unavailable := range map[error]bool{
		syscall.ENOSPC: true, syscall.EMFILE: true, syscall.EIO: true, driver.ErrUnavailable: true,
		syscall.ENOENT: false, syscall.ENOTDIR: false, syscall.EACCES: false, syscall.EROFS: false,
	} {
		err := unusable(fmt.Errorf("filestore: the folder /srv/locks: %w", cause))
		assert.ErrorIs(t, err, cause)
		code, has := errors.AsType[*exit.Error](err)
		assert.Equal(t, unavailable, has, cause)
		assert.True(t, !has || code.Code == exit.Unavailable, cause)
	}
}
