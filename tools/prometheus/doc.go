// Package prometheus tests the alerts and recording rules in config/monitoring, with Prometheus' own parser and
// promtool. It has its own module, so that these dependencies don't affect other modules. It is not shipped.
package prometheus
