// Package userdata renders the script in the Secret windows-user-data. A new machine runs this script at its first
// boot. The script then lets the operator log in with its SSH key, or joins the machine without SSH.
//
// The controller with the same name publishes the Secret. The script is PowerShell, because clouds run user data with
// PowerShell. It is the only PowerShell in this module. It comes from one template, and every value is parsed and
// formatted again, so that it can't inject code. The package is pure: it reads no cluster and creates no keys.
package userdata
