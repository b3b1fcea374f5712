// Package prometheus has the tests of the alerts and recording rules in config/monitoring, with
// Prometheus' own parser and promtool. It is a module of its own, so that what those require binds
// nobody else, and it ships nothing.
package prometheus
