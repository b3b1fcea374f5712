// Package wine contains the tests with the Windows programs that users' hosts run: the real daemon and containerd. They
// run under Wine, and the real operator joins their hosts to a real API server. Each test is named after the acceptance
// row that it shows.
package wine
