// Package wine holds the tests of what customers' hosts run: the real daemon and containerd as
// Windows programs, under Wine, joined to a real API server by the real operator. Each test is
// named after the acceptance row that it shows.
package wine
