package redistest

import "os"

// announce prints line where a person sees it. `go test ./...` drops the output of a
// passing package, which would hide that tests were skipped. So the line goes to the
// standard error of the go command if it can be opened, and to our own otherwise.
func announce(line string) {
	if goStderr, err := openGoStderr(); err == nil {
		defer goStderr.Close()
		if _, err := goStderr.WriteString(line); err == nil {
			return
		}
	}
	os.Stderr.WriteString(line)
}
