package sample

import "testing"

// The package has the name of the one around it.
func TestNamesake(*testing.T) {}
