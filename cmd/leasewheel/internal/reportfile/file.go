// Package reportfile writes reports into files.
package reportfile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Check verifies that Write can write a report to each path, and none in place of another, and
// leaves nothing behind: a measurement takes long, and may be interrupted. It refuses "-", which
// is standard output elsewhere, and the file that standard output is: there the command prints its
// own report.
func Check(paths ...string) error {
	seen := make(map[string]bool)
	for _, path := range paths {
		switch {
		case path == "-" || isOutput(path):
			return fmt.Errorf("cannot write the report to %s: standard output has another; ./- is a file of that name", path)
		case path == "" || isDevice(path):
			continue
		}
		if err := checkFile(path); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
		file := filepath.Clean(followed(path))
		if seen[file] {
			return fmt.Errorf("cannot write two reports to one file: %s", path)
		}
		seen[file] = true
	}
	return nil
}

func checkFile(path string) error {
	f, err := createBeside(path)
	if err == nil {
		f.Close()
		return os.Remove(f.Name())
	}
	if f, inPlace := os.OpenFile(path, os.O_WRONLY, 0); inPlace == nil {
		return f.Close()
	}
	return err
}

// Write writes a report to path; without a path it does nothing. The report replaces
// an earlier one as a whole, or not at all. It is written in place to a device or a pipe,
// and to a file that cannot be replaced, such as one that is mounted by itself.
func Write(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var report bytes.Buffer
	if err := write(&report); err != nil {
		return err
	}
	if !isDevice(path) {
		written, err := replaceFile(path, report.Bytes())
		if _, missing := os.Stat(path); written || missing != nil {
			return err
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(report.Bytes())
	return errors.Join(err, f.Close())
}

// replaceFile replaces the file at path by a report. written is false if the
// system lets no other file take its place, and true after any other error, such as of a
// full disk: the earlier file is as it was.
func replaceFile(path string, report []byte) (written bool, err error) {
	f, err := createBeside(path)
	if err != nil {
		return false, err
	}
	_, err = f.Write(report)
	err, written = errors.Join(err, f.Close()), true
	if err == nil {
		err = os.Rename(f.Name(), followed(path))
		written = err == nil
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return written, err
}

// createBeside creates a new file in the folder of path, if path itself may be written. The
// errors name path.
func createBeside(path string) (*os.File, error) {
	target := followed(path)
	// Not as os.CreateTemp has it: the umask alone decides who may read a new report.
	mode := fs.FileMode(0o666)
	info, missing := os.Stat(target)
	if missing == nil {
		earlier, err := os.OpenFile(path, os.O_WRONLY, 0) // fails for a folder, too
		if err != nil {
			return nil, err
		}
		earlier.Close()
		mode = info.Mode().Perm()
	}
	name := filepath.Join(filepath.Dir(target), "."+filepath.Base(target)+"."+rand.Text()[:8])
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		failed.Path = path
	}
	if err == nil && missing == nil {
		_ = f.Chmod(mode) // which the umask may have narrowed; not every file system has modes
	}
	return f, err
}

// followed returns the file that path leads to by symbolic links, which stay as they are.
func followed(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}

// isOutput reports whether path is the file that standard output is, as /dev/stdout is under > in a
// shell. A report that replaced it would take the command's own output along.
func isOutput(path string) bool {
	file, err := os.Stat(path)
	output, outputErr := os.Stdout.Stat()
	return err == nil && outputErr == nil && file.Mode().IsRegular() && os.SameFile(file, output)
}

// isDevice reports whether path is neither a file nor a folder, so that nothing can replace
// it.
func isDevice(path string) bool {
	info, err := os.Stat(path)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}
