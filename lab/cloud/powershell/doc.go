// Package powershell answers what a script of user data leaves on a new machine: which files, and
// which ports open.
//
// The lab's cloud runs its hosts' user data through it. It is no PowerShell: it reads the part of
// the language that such scripts need, refuses what PowerShell would refuse before it ran anything,
// and follows texts through variables, functions and file commands to where they end up. Every
// condition is taken to hold, with its else, every loop runs once, nothing is ever caught, and
// commands that it doesn't know do nothing.
package powershell
