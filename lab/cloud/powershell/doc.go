// Package powershell determines the effect of a user data script on a new machine: the files it writes and the ports it
// opens.
//
// The cloud of the lab uses it to run the user data of its hosts. It isn't a full PowerShell: it supports the part of
// the language that such scripts need, and tracks texts through variables, functions and file commands. Like
// PowerShell, it refuses scripts with syntax errors. Every condition counts as true, its else branch also runs, every
// loop runs once, no exception is caught, and unknown commands do nothing.
package powershell
