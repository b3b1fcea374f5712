// Package payloadimage answers how a payload comes out of a container image: it pulls the image by its
// digest, from the cluster's mirrors and with its credentials, into a directory of blobs, and says
// which payload is in use meanwhile.
//
// The operator runs it beside its payload server, which serves what is here; the publish controller
// says which image is wanted. It renders nothing, and moves no node.
//
// An image is what `make image` writes: one layer with payload.json, and then one for each blob in the
// order of payload.json. Each blob is verified by its SHA-256 and only then named after it, so that a
// pull that ended halfway goes on with the next blob.
package payloadimage
