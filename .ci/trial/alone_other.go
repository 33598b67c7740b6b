//go:build !unix

package main

import "os/exec"

// alone does nothing: other systems have no process groups.
func alone(*exec.Cmd) {}
