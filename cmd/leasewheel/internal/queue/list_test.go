package queue

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// An error in a table is cut between two characters: half of one would be quoted.
func TestErrorCellKeepsCharactersWhole(t *testing.T) {
	t.Parallel()
	for _, character := range []string{"x", "é", "€", "😀"} {
		for before := range len(character) {
			text := strings.Repeat("x", maxCell-before) + strings.Repeat(character, 9)
			assert.Equal(t, text[:maxCell-before]+"…", errorCell(text))
		}
	}
	assert.Equal(t, "-", errorCell(""))
	long := strings.Repeat("é", maxCell/2)
	assert.Equal(t, long, errorCell(long))
}
