//go:build linux

package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A round can be repeated: its plan depends on the seed and its number alone.
func TestPlansRepeat(t *testing.T) {
	sites := map[site]int{}
	kinds := map[string]int{}
	for n := range 500 {
		p := draw(7, n, limits{})
		require.Equal(t, p, draw(7, n, limits{}))
		sites[p.Site]++
		for _, f := range p.Faults {
			kinds[f.Kind]++
		}
	}
	require.Len(t, sites, 4)
	for _, k := range faultKinds() {
		require.NotZero(t, kinds[k.name], "%s is never drawn", k.name)
	}
	require.NotEqual(t, draw(7, 1, limits{}), draw(8, 1, limits{}))
}
