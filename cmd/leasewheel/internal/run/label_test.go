//go:build unix

package run

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A label is made of any executable's name.
func TestLabelOf(t *testing.T) {
	for name, label := range map[string]string{"/usr/bin/backup": "backup", "./näh": "näh", "a\xff\x1b[2J": "a??[2J", "/": "/"} {
		assert.Equal(t, label, labelOf(name))
	}
}
