//go:build !linux

package redistest

import (
	"errors"
	"os"
)

func openGoStderr() (*os.File, error) { return nil, errors.ErrUnsupported }
