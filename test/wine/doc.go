// Package wine contains the tests with the Windows programs that users' hosts run: the real daemon and containerd. The
// programs run under Wine, and the real operator joins the hosts to a real API server. Each test is named after the
// acceptance row that it shows.
package wine
