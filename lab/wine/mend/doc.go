// Package mend answers whether Go programs get on a Wine host what lab/wine/native adds to Wine:
// sockets at a path, and links. It has tests only, which run there.
package mend
