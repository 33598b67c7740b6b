//go:build !unix

package connect

import (
	"context"
	"errors"
	"io"
	"runtime"
)

// runLine fails: there is no /bin/sh here.
func runLine(context.Context, string, io.Writer) error {
	return errors.New("it needs /bin/sh, which " + runtime.GOOS + " does not have")
}
