// Package mend tests the functions that lab/wine/native adds to Wine: Go programs on a Wine host must be able to use
// sockets with a path, and links. It contains only tests.
package mend
