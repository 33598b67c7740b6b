//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// controllingTerminal is the controlling terminal, which only one process group at a time may read:
// the foreground group. A command in a group of its own is stopped when it reads. Only
// then it gets the foreground, since a pager in our pipeline may be reading keys. With a
// nil one it never does.
type controllingTerminal struct {
	tty   *os.File
	group int // ours
}

// openTerminal returns the controlling terminal, or nil if there is none.
func openTerminal() *controllingTerminal {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	return &controllingTerminal{tty: tty, group: unix.Getpgrp()}
}

// heldBy reports whether group is the foreground group.
func (t *controllingTerminal) heldBy(group int) bool {
	foreground, err := unix.IoctlGetInt(int(t.tty.Fd()), unix.TIOCGPGRP)
	return err == nil && foreground == group
}

// giveForeground gives the foreground to group if our group has it, and reports whether it did.
func (t *controllingTerminal) giveForeground(group int) bool {
	return t != nil && t.heldBy(t.group) && t.give(group)
}

// reclaim takes the foreground back if group has it, and reports whether it did. The
// caller ignores SIGTTOU, which the kernel sends to a background group for this.
func (t *controllingTerminal) reclaim(group int) bool {
	return t != nil && t.heldBy(group) && t.give(t.group)
}

func (t *controllingTerminal) give(group int) bool {
	return unix.IoctlSetPointerInt(int(t.tty.Fd()), unix.TIOCSPGRP, group) == nil
}

func (t *controllingTerminal) close() {
	if t != nil {
		t.tty.Close()
	}
}
