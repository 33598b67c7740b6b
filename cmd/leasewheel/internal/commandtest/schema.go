package commandtest

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Schema is as much of JSON Schema as the files in docs/ use. A
// library for all of it would be the largest dependency of the module.
type Schema struct {
	Type       any               `json:"type"` // a name or a list of names
	Required   []string          `json:"required"`
	Properties map[string]Schema `json:"properties"`
	Items      *Schema           `json:"items"`
	MinItems   int               `json:"minItems"`
	Minimum    *float64          `json:"minimum"`
	Enum       []any             `json:"enum"`

	// Recorded, not checked.
	Dialect     string `json:"$schema"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Format      string `json:"format"`
}

// ReadSchema reads the schema of a report from docs/.
func ReadSchema(t *testing.T, report string) Schema {
	t.Helper()
	folder, err := os.Getwd()
	require.NoError(t, err)
	name := filepath.Join("docs", report+".schema.json")
	for !exists(filepath.Join(folder, name)) {
		require.NotEqual(t, folder, filepath.Dir(folder), "no %s in a folder above", name)
		folder = filepath.Dir(folder)
	}
	f, err := os.Open(filepath.Join(folder, name))
	require.NoError(t, err)
	defer f.Close()
	var s Schema
	decoder := json.NewDecoder(f)
	// A keyword that is unknown here would not be checked.
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&s))
	return s
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// Faults returns the faults of the value at path.
func (s Schema) Faults(path string, value any) []string {
	var found []string
	if !s.typeFits(value) {
		return []string{path + " is not of type " + fmt.Sprint(s.Type)}
	}
	if s.Enum != nil && !slices.Contains(s.Enum, value) {
		found = append(found, fmt.Sprintf("%s is not among %v", path, s.Enum))
	}
	switch v := value.(type) {
	case float64:
		if s.Minimum != nil && v < *s.Minimum {
			found = append(found, fmt.Sprintf("%s is below %v", path, *s.Minimum))
		}
	case []any:
		if len(v) < s.MinItems {
			found = append(found, fmt.Sprintf("%s has fewer than %d items", path, s.MinItems))
		}
		for i, item := range v {
			found = append(found, s.Items.Faults(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	case map[string]any:
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				found = append(found, member(path, name)+" is missing")
			}
		}
		for name, property := range s.Properties {
			if inner, ok := v[name]; ok {
				found = append(found, property.Faults(member(path, name), inner)...)
			}
		}
	}
	return found
}

// Unnamed returns the properties in the value that the schema does not name.
func (s Schema) Unnamed(path string, value any) []string {
	var found []string
	switch v := value.(type) {
	case []any:
		for i, item := range v {
			found = append(found, s.Items.Unnamed(fmt.Sprintf("%s[%d]", path, i), item)...)
		}
	case map[string]any:
		for name, inner := range v {
			property, ok := s.Properties[name]
			if !ok {
				found = append(found, member(path, name))
				continue
			}
			found = append(found, property.Unnamed(member(path, name), inner)...)
		}
	}
	return found
}

func member(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func (s Schema) typeFits(value any) bool {
	switch names := s.Type.(type) {
	case nil:
		return true
	case string:
		return typeOf(value, names)
	case []any:
		return slices.ContainsFunc(names, func(name any) bool { return typeOf(value, name.(string)) })
	}
	return false
}

func typeOf(value any, name string) bool {
	switch v := value.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case string:
		return name == "string"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v)
	case []any:
		return name == "array"
	case map[string]any:
		return name == "object"
	}
	return false
}
