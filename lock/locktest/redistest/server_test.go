package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { Main(m) }

func TestStart(t *testing.T) {
	for name, config := range map[string]Config{
		"unix socket":     {},
		"tcp":             {TCP: true},
		"password":        {Password: "p@ss:word/%"},
		"password on tcp": {TCP: true, Password: "p@ss:word/%"},
	} {
		t.Run(name, func(t *testing.T) {
			client := Start(t, config).Client(t)
			require.NoError(t, client.Set(t.Context(), "key", "value", 0).Err())
			require.Equal(t, "value", client.Get(t.Context(), "key").Val())
		})
	}
}
