// Package userdata renders the script of the secret windows-user-data, which makes a new machine accept the key at its
// first boot.
//
// The controller of the same name publishes it. The script is PowerShell, because clouds run PowerShell there. It is
// the only PowerShell in this module. It comes from one template, and every value in it is parsed and formatted again
// here. The package is pure: it reads no cluster and creates no keys.
package userdata
