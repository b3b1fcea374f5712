// Package hosttest provides a fake machine for tests of code that works on hosts. A test sets how each verb (a command
// of the daemon's binary) behaves.
//
// Tests use it if a whole simulated Windows would be too much. It opens no socket, and product code never imports it.
package hosttest
