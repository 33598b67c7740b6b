package redistest

import "os"

// announce prints line where a person sees it. `go test ./...` drops what a
// passing package prints, which would hide that tests were skipped; so the line
// goes to the standard error of the go command where that can be reached, and
// to our own otherwise.
func announce(line string) {
	if goStderr, err := openGoStderr(); err == nil {
		defer goStderr.Close()
		if _, err := goStderr.WriteString(line); err == nil {
			return
		}
	}
	os.Stderr.WriteString(line)
}
