//go:build !linux

package redistest

import "os/exec"

// dieWithParent does nothing here: there is no Pdeathsig. The process stays in our group,
// so that an interrupt at the terminal ends it too.
func dieWithParent(*exec.Cmd) {}
