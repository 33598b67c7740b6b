package main

import (
	"encoding/json"
	"io"
)

// writeJSON prints v as indented JSON with a final newline, the form of every
// --json report.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
