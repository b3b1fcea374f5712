// Package prometheus tests the alerts and recording rules in config/monitoring, with Prometheus' own parser and
// promtool. It also draws the picture of the dashboard in docs, with Prometheus' own engine. It has its own module, so
// that these dependencies don't affect other modules. It is not shipped.
package prometheus
