// Package prometheus runs a real Prometheus on the lab's cluster. The Prometheus operator's own code
// (tools/promoperator) creates its configuration from ServiceMonitors and PrometheusRules. Tests of
// config/monitoring use it. The package adds no targets or rules.
package prometheus
