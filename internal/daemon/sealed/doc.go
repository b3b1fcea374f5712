// Package sealed answers what this host keeps encrypted for itself, and gives it back.
//
// The service and bootstrap keep the confidential parts of manifests in it, so that they hold while
// the API server is away. What lies in it only this machine can decrypt, and only Administrators may
// open. It decides nothing.
package sealed
