// Package mend tests on a Wine host that Go programs can use the functions that lab/wine/native adds to Wine: sockets
// at a path, and links. It contains only tests.
package mend
