// Package prometheus runs a real Prometheus on the lab's cluster, configured from ServiceMonitors and
// PrometheusRules by the Prometheus operator's own code (tools/promoperator). Tests of what config/monitoring
// describes use it. It invents no target and no rule.
package prometheus
