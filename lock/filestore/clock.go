//go:build linux

package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/machine"
)

// clock is the clock of a folder, of which all processes read the same time: that since the
// system was started, which no one sets, and which goes on while the system sleeps. It begins
// with the wall clock, or with the folder's last time if that is later, so that tokens grow.
type clock struct {
	system string // which start of the system
	base   int64  // µs of the clock at that start
	sweep  int64  // µs: when the next sweep may begin; none has removed anything later
}

const (
	pathOfClock = "clock"
	// format is that of all files. Processes of different formats share no folder.
	format = "1"
)

func (c *clock) code(m *machine.Coder) {
	m.Text(&c.system)
	machine.Int(m, &c.base)
	machine.Int(m, &c.sweep)
}

// system is what a store knows of its computer.
type system struct {
	id     string               // of its start, and how its clock is read
	uptime func() time.Duration // since then
	wall   func() time.Time
	pwrite func(fd int, b []byte, at int64) (int, error)
	peers  func(dir int, id string, receive func([]byte), missed func()) (peers, error)
}

// linux returns the system's own.
func linux() (system, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return system{}, fmt.Errorf("the system does not reveal when it was started: %w", err)
	}
	offsets, _ := os.ReadFile("/proc/self/timens_offsets") // of a time namespace; other namespaces have none
	id := strings.Join(append([]string{format}, strings.Fields(string(boot)+" "+string(offsets))...), " ")
	return system{id, uptime, time.Now, syscall.Pwrite, openFIFO}, nil
}

func uptime() time.Duration {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) //nolint:errcheck // it exists since Linux 2.6.39
	return time.Duration(t.Nano())
}

// openClock returns the base of the folder's clock, and sets it for the first store since the
// start of the system: to own, which is the base of a store that was opened before the clock was
// deleted, or 0. A clock of another start is in use while a store lives, other than id. One store cannot see another
// that has no pipe yet, so each calls it again once it has one.
func openClock(ctx context.Context, dir *folder, s system, own int64, id string) (base int64, err error) {
	f, err := dir.open(ctx, pathOfClock, true)
	if err != nil {
		return 0, err
	}
	defer f.close()
	var c clock
	if !machine.Decode(f.content, c.code) {
		c = clock{}
	}
	if c.system == s.id {
		return c.base, nil
	}
	if started(c.system) == started(s.id) {
		return 0, fmt.Errorf("the folder is in use by another version of leasewheel, or in another time namespace (%q, not %q)", c.system, s.id)
	}
	if c.system != "" {
		used, err := dir.used(id)
		if err != nil {
			return 0, err
		} else if used {
			return 0, errOtherStart
		}
	}
	c = clock{s.id, cmp.Or(own, max(s.wall().UnixMicro(), c.sweep)-s.uptime().Microseconds()), c.sweep}
	return c.base, f.write(machine.Encode(c.code))
}

// errOtherClock is permanent: each of two clocks takes what the other's stores hold for that of
// an earlier start of the system.
var errOtherClock = errors.New("the folder's clock was deleted, and made anew by another process: start this one again")

// errOtherStart is permanent. A start of the system ends all processes, so one that lives reads another boot_id.
var errOtherStart = errors.New("processes that live use the folder with another /proc/sys/kernel/random/boot_id, as a container of systemd-nspawn or LXC has one of its own: bind the host's into the container")

// checkClock returns an error if the folder's clock is not the store's any more. It restores one
// that was deleted.
func (s *Store) checkClock(ctx context.Context) error {
	var c clock
	_ = s.contents(pathOfClock, func(b []byte) { machine.Decode(b, c.code) })
	if c.base == s.base {
		return nil
	}
	switch base, err := openClock(ctx, s.folder, s.system, s.base, s.id); {
	case errors.Is(err, errOtherStart):
		return fmt.Errorf("filestore: %w: %w", driver.ErrNotDone, err)
	case err != nil:
		return fmt.Errorf("filestore: %w: %w: %w", driver.ErrUnavailable, driver.ErrNotDone, err)
	case base != s.base:
		return fmt.Errorf("filestore: %w: %w", driver.ErrNotDone, errOtherClock)
	}
	return nil
}

// started returns which start of the system an id is of.
func started(system string) string {
	if fields := strings.Fields(system); len(fields) > 1 {
		return fields[1]
	}
	return ""
}
