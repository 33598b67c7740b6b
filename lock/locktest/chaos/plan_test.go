//go:build linux

package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A round can be repeated: its plan depends on the seed and its number alone.
func TestPlansRepeat(t *testing.T) {
	sites, roles := map[site]int{}, map[role]int{}
	mapped, pools := 0, 0
	kinds := map[string]int{}
	for n := range 500 {
		p := draw(7, n, limits{})
		if n < 50 { // the comparison takes longer than the plan
			require.Equal(t, p, draw(7, n, limits{}))
		}
		sites[p.Site]++
		for _, f := range p.Faults {
			kinds[f.Kind]++
		}
		for _, n := range p.Names {
			roles[n.Role]++
		}
		if p.Mapping != (mapping{}) {
			mapped++
		}
		if p.Workers[0].Pool > 0 {
			pools++
		}
	}
	require.Len(t, sites, 4)
	require.Len(t, roles, 5)
	require.NotZero(t, mapped)
	require.NotZero(t, pools)
	for _, k := range faultKinds() {
		require.NotZero(t, kinds[k.name], "%s is never drawn", k.name)
	}
	require.NotEqual(t, draw(7, 1, limits{}), draw(8, 1, limits{}))
}
