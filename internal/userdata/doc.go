// Package userdata answers what a new machine is told at its first boot, so that it accepts the key: the
// script of the secret windows-user-data.
//
// The controller of the same name publishes it. The script is PowerShell, which is what clouds run
// there and the only PowerShell that we have; it comes from one template, and nothing gets into it
// but what was parsed and written anew here. The package is pure: it reads no cluster and makes no
// keys.
package userdata
