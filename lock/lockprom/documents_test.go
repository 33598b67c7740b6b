package lockprom

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/leasewheel/leasewheel/lock/driver"
	"github.com/leasewheel/leasewheel/lock/internal/exporter"
	"github.com/leasewheel/leasewheel/lock/observe"
	"github.com/leasewheel/leasewheel/renewal"
)

// everything returns all metrics, with one series at least.
func everything(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	c := New(Config{})
	for _, outcome := range []observe.Outcome{observe.Granted, observe.HandedOff, observe.Refused, observe.Failed} {
		for _, kind := range []driver.Kind{driver.KindMutex, driver.KindFair, driver.KindRead, driver.KindWrite, driver.KindPermit} {
			c.Observer("x").Acquired(t.Context(), observe.Acquired{Kind: kind, Outcome: outcome})
		}
	}
	for _, outcome := range []observe.Outcome{observe.Released, observe.Lost, observe.Failed} {
		c.Observer("x").Ended(t.Context(), observe.Ended{Outcome: outcome})
	}
	return scrape(t, collected(func(ch chan<- prometheus.Metric) {
		c.Collect(ch)
		collectLocker(ch, "x", observe.Stats{})
		collectLeases(ch, "x", renewal.Stats{})
		collectWheel(ch, "x", exporter.WheelStats{})
	}))
}

// names returns the exported metrics' names as queries use them, with their labels, "le" for
// buckets.
func names(families map[string]*dto.MetricFamily) map[string][]string {
	all := make(map[string][]string)
	for name, family := range families {
		var labels []string
		for _, pair := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, pair.GetName())
		}
		if family.GetType() != dto.MetricType_HISTOGRAM {
			all[name] = labels
			continue
		}
		all[name+"_count"], all[name+"_sum"] = labels, labels
		all[name+"_bucket"] = append(slices.Clone(labels), "le")
	}
	return all
}

var (
	metric   = regexp.MustCompile(`leasewheel_\w+`)
	selector = regexp.MustCompile(`(leasewheel_\w+)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)(=~|=|!=)"([^"]*)"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
)

// checkQuery checks that a query's metrics are exported with the labels that it uses, and
// that outcomes and causes in it exist. It returns the metrics.
func checkQuery(t *testing.T, families map[string]*dto.MetricFamily, query string) []string {
	t.Helper()
	exported := names(families)
	used := metric.FindAllString(query, -1)
	require.NotEmpty(t, used, query)
	labels := []string{"job", "instance"}
	for _, name := range used {
		require.Contains(t, exported, name, query)
		labels = append(labels, exported[name]...)
	}
	for _, by := range grouping.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(by[1], ", ") {
			assert.Contains(t, labels, label, query)
		}
	}
	for _, match := range selector.FindAllStringSubmatch(query, -1) {
		for _, m := range matcher.FindAllStringSubmatch(match[2], -1) {
			if strings.HasPrefix(m[3], "$") {
				continue // a variable of the dashboard
			}
			for value := range strings.SplitSeq(m[3], "|") {
				assert.True(t, hasValue(families, match[1], m[1], value), "%s: no %s with %s=%q", query, match[1], m[1], value)
			}
		}
	}
	return used
}

// hasValue reports whether a series of the metric has the value of the label.
func hasValue(families map[string]*dto.MetricFamily, name, label, value string) bool {
	for s := range series(families) {
		if nameOf(s) == name && strings.Contains(s, label+`="`+value+`"`) {
			return true
		}
	}
	return false
}

// The alerts use metrics and labels that exist, and each has a place in the runbook.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&rules))
	families := everything(t)
	operating, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	require.NoError(t, err)
	alerts := 0
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			alerts++
			checkQuery(t, families, rule.Expr)
			assert.Contains(t, []string{"critical", "warning", "info"}, rule.Labels["severity"], rule.Alert)
			assert.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			assert.NotEmpty(t, rule.Annotations["description"], rule.Alert)
			assert.Equal(t, "docs/operating.md#"+strings.ToLower(rule.Alert), rule.Annotations["runbook"])
			assert.Contains(t, string(operating), "\n### "+rule.Alert+"\n")
		}
	}
	assert.Greater(t, alerts, 10)
	assert.Equal(t, alerts, strings.Count(string(operating), "\n### "), "headings of the runbook without an alert")
}

// The dashboard shows every metric, and none that does not exist. Its panels do not overlap.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		UID           string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Query any }
		}
		Panels []struct {
			ID          int
			Type, Title string
			Description string
			Datasource  struct{ Type, UID string }
			FieldConfig struct{ Defaults struct{ Unit string } }
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ RefID, Expr, LegendFormat string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	assert.NotEmpty(t, dashboard.UID)
	assert.GreaterOrEqual(t, dashboard.SchemaVersion, 36, "the first with objects as data sources")
	require.NotEmpty(t, dashboard.Templating.List)
	assert.Equal(t, "datasource", dashboard.Templating.List[0].Name)
	assert.Equal(t, "datasource", dashboard.Templating.List[0].Type)
	assert.Equal(t, "prometheus", dashboard.Templating.List[0].Query)
	families := everything(t)
	shown := make(map[string]bool)
	ids, cells := make(map[int]bool), make(map[[2]int]string)
	for _, p := range dashboard.Panels {
		assert.False(t, ids[p.ID], "the id of %s is another's", p.Title)
		ids[p.ID] = true
		assert.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, cells[cell], "%s overlaps", p.Title)
				cells[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.NotEmpty(t, p.Targets, p.Title)
		assert.Equal(t, "prometheus ${datasource}", p.Datasource.Type+" "+p.Datasource.UID, p.Title)
		assert.Contains(t, []string{"s", "ops", "short", "percentunit"}, p.FieldConfig.Defaults.Unit, p.Title)
		assert.NotEmpty(t, p.Description, p.Title)
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			assert.False(t, refs[target.RefID], "%s: a query's name is another's", p.Title)
			refs[target.RefID] = true
			checkLegend(t, target.Expr, target.LegendFormat)
			for _, name := range checkQuery(t, families, target.Expr) {
				shown[family(families, name)] = true
			}
		}
	}
	assert.Equal(t, slices.Sorted(maps.Keys(families)), slices.Sorted(maps.Keys(shown)))
}

var (
	shownLabel = regexp.MustCompile(`\{\{(\w+)\}\}`)
	alertLabel = regexp.MustCompile(`\$labels\.(\w+)`)
)

// checkLegend checks that a legend shows the labels that its query keeps, all of them and no
// other, and that a quantile is one of buckets.
func checkLegend(t *testing.T, query, legend string) {
	t.Helper()
	by := grouping.FindStringSubmatch(query)
	var kept, named []string
	if by != nil {
		kept = strings.Split(by[1], ", ")
	}
	if strings.HasPrefix(query, "histogram_quantile(") {
		assert.Contains(t, kept, "le", query)
		assert.Contains(t, query, "_bucket{", query)
		kept = slices.DeleteFunc(kept, func(label string) bool { return label == "le" })
	}
	for _, match := range shownLabel.FindAllStringSubmatch(legend, -1) {
		named = append(named, match[1])
	}
	assert.ElementsMatch(t, kept, named, "%s as %s", query, legend)
}

// Each alert is tested by rules that promtool executes, which runs here where it is
// installed. An alert's summary names labels that its query keeps.
func TestRulesOfAlerts(t *testing.T) {
	rules, err := os.ReadFile("alerts.yaml")
	require.NoError(t, err)
	tests, err := os.ReadFile("alerts.test.yaml")
	require.NoError(t, err)
	families := everything(t)
	for _, rule := range strings.Split(string(rules), "- alert: ")[1:] {
		alert, rest, _ := strings.Cut(rule, "\n")
		assert.Contains(t, string(tests), `{alertname="`+alert+`"}`)
		query, annotations, _ := strings.Cut(rest, "labels:\n")
		kept := names(families)[metric.FindString(query)]
		if by := grouping.FindStringSubmatch(query); by != nil {
			kept = strings.Split(by[1], ", ")
		} else {
			kept = append(slices.Clone(kept), "job", "instance")
		}
		for _, match := range alertLabel.FindAllStringSubmatch(annotations, -1) {
			assert.Contains(t, kept, match[1], alert)
		}
	}
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Log("promtool is not installed: the rules were not executed")
		return
	}
	out, err := exec.Command(promtool, "test", "rules", "alerts.test.yaml").CombinedOutput()
	require.NoError(t, err, string(out))
}

// family returns the metric that a name in a query belongs to.
func family(families map[string]*dto.MetricFamily, name string) string {
	for _, suffix := range []string{"", "_count", "_sum", "_bucket"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && families[base] != nil {
			return base
		}
	}
	return name
}

// docs/metrics.md has a row for each metric, with its labels and whether it is a histogram,
// and lists all outcomes and causes.
func TestDocumentation(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "metrics.md"))
	require.NoError(t, err)
	row := regexp.MustCompile("(?m)^\\| `(leasewheel_\\w+)` \\| ([^|]*) \\| ([^|]+) \\|")
	documented := make(map[string]string)
	families := everything(t)
	for _, match := range row.FindAllStringSubmatch(string(text), -1) {
		name := match[1]
		documented[name] = match[2]
		assert.Equal(t, families[name].GetType() == dto.MetricType_HISTOGRAM, strings.HasPrefix(match[3], "histogram"), name)
	}
	exported := make(map[string]string)
	for name, f := range families {
		var labels []string
		for _, pair := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, "`"+pair.GetName()+"`")
		}
		slices.SortFunc(labels, func(a, b string) int { return order(a) - order(b) })
		exported[name] = strings.Join(labels, ", ")
	}
	assert.Equal(t, exported, documented)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, pair := range m.GetLabel() {
				ok := pair.GetValue() == "x" || strings.Contains(string(text), "`"+pair.GetValue()+"`")
				assert.True(t, ok, "the page has no %s=%q", pair.GetName(), pair.GetValue())
			}
		}
	}
}

// order sorts labels as the page has them.
func order(label string) int {
	return slices.Index([]string{"`locker`", "`watchdog`", "`wheel`", "`kind`", "`outcome`", "`cause`"}, label)
}
