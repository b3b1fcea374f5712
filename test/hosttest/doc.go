// Package hosttest answers what code that works on hosts does when a host behaves so or so: a
// machine that plays a script.
//
// Tests use it where a whole simulated Windows would be too much. It opens no socket, and product
// code never imports it.
package hosttest
