package contract

import "strings"

const uploadedDigits = 16

// UploadedName returns the name, in the RPC directory, of the daemon's binary with this hex digest.
func UploadedName(digest string) string {
	return "wicd-" + digest[:min(uploadedDigits, len(digest))] + ".exe"
}

// IsCallID reports whether a text can be the ID of a call. The ID becomes part of a file name and an unquoted argument.
func IsCallID(text string) bool {
	return text != "" && len(text) <= 64 &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// RequestName returns the name of the file with the request of a call, in the RPC directory.
func RequestName(id string) string { return id + ".req.json" }

// AnswerName returns the name of the file with the answer of a call, in the RPC directory.
func AnswerName(id string) string { return id + ".ans.json" }
