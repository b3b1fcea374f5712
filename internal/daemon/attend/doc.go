// Package attend lets a host join the cluster without SSH: the host fetches the operator's calls and carries them out.
//
// An administrator runs the join command on the host, which calls Attend. With the token of the command, Attend gets a
// certificate of the host. Then it installs a Windows service, which calls Serve. Serve watches the Secret with the
// operator's calls, runs the daemon's program for each call, and writes the answer to the Secret. The package makes no
// decisions about the node. It never logs or prints tokens, requests or answers.
package attend
