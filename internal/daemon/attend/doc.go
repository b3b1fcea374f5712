// Package attend lets a host join by itself: it carries out the operator's calls without SSH.
//
// The command on the host runs Attend, which installs the service. The service runs Serve: it gets a certificate of the
// host for the token, watches the Secret with the operator's calls, runs the daemon's program for each of them, and
// writes the answers to the Secret. The package decides nothing about the node. It logs and prints no
// tokens, requests or answers.
package attend
