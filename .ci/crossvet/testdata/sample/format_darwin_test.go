package sample

import "testing"

func TestFormat(t *testing.T) { t.Logf("%d", "text") }
