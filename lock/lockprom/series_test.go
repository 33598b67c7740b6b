package lockprom

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// scrape has the collectors scraped over HTTP, as Prometheus does.
func scrape(t *testing.T, collectors ...prometheus.Collector) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	for _, c := range collectors {
		require.NoError(t, registry.Register(c))
	}
	recorder := httptest.NewRecorder()
	handler := promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError})
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, recorder.Code, recorder.Body.String())
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(recorder.Body)
	require.NoError(t, err)
	return families
}

// series returns all values by name and labels, as PromQL writes them: for a histogram its
// _count, its _sum and each _bucket.
func series(families map[string]*dto.MetricFamily) map[string]float64 {
	values := make(map[string]float64)
	for name, family := range families {
		for _, m := range family.GetMetric() {
			switch {
			case m.Counter != nil:
				values[name+labelsOf(m)] = m.Counter.GetValue()
			case m.Gauge != nil:
				values[name+labelsOf(m)] = m.Gauge.GetValue()
			case m.Histogram != nil:
				values[name+"_count"+labelsOf(m)] = float64(m.Histogram.GetSampleCount())
				values[name+"_sum"+labelsOf(m)] = m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.GetBucket() {
					le := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64)
					values[name+"_bucket"+labelsOf(m, `le="`+le+`"`)] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return values
}

// labelsOf returns the labels of m, and more, in braces.
func labelsOf(m *dto.Metric, more ...string) string {
	var pairs []string
	for _, pair := range m.GetLabel() {
		pairs = append(pairs, pair.GetName()+"="+strconv.Quote(pair.GetValue()))
	}
	return "{" + strings.Join(append(pairs, more...), ",") + "}"
}

// nameOf returns the name of a series.
func nameOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	return name
}
