// Package e2e holds the end-to-end tests: the real operator as a process under the rights that we
// ship, a real API server, and simulated Windows hosts that run the real daemon's code. Each test
// is named after the acceptance row that it shows.
package e2e
